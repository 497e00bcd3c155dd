// A browser with the page in it. What goes wrong in the page is an error here; a request that is refused is not, the page tells of it.
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';

const puppeteer = createRequire(`${process.env.READERS}/`)('puppeteer-core');

/** Runs the scenario with a page of its own; `requests` are the addresses that the page asked for. */
export async function withPage(name, scenario) {
  const directory = mkdtempSync(join(tmpdir(), 'profrec-page-'));
  const browser = await puppeteer.launch({
    executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'], userDataDir: join(directory, 'user'),
    defaultViewport: { width: 1280, height: 900 },
  });
  try {
    const page = await browser.newPage(), errors = [], requests = [];
    page.on('pageerror', error => errors.push(error.stack ?? String(error)));
    page.on('console', message => { if (message.type() === 'error' && !/^Failed to load resource/.test(message.text())) errors.push(message.text()); });
    page.on('request', request => requests.push(request.url()));
    const session = await browser.target().createCDPSession();
    const tools = new Tools(page, directory, name);
    session.on('Browser.downloadProgress', ({ state }) => { if (state === 'completed') tools.downloaded++; });
    await session.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: directory, eventsEnabled: true });
    await scenario(page, tools, requests);
    assert.deepEqual(errors, []);
  } finally {
    await browser.close();
    rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
  }
}

class Tools {
  constructor(page, directory, name) {
    Object.assign(this, { page, directory, name, downloaded: 0 });
  }

  text(selector) {
    return this.page.$eval(selector, element => element.textContent.trim());
  }

  /** Until a profile is shown. */
  shown() {
    return this.page.waitForSelector('#shown:not([hidden])');
  }

  shot(what) {
    return this.page.screenshot({ path: join(process.env.SCREENSHOTS, `${this.name}-${what}.png`) });
  }

  /** Clicks in the middle of the drawn frame of this name. */
  async clickFrame(name) {
    const at = await this.page.evaluate(name => {
      for (const [depth, row] of graph.rows.entries()) {
        const rect = row.find(({ frame }) => frame?.text === name);
        if (rect) {
          const { left, top } = graph.canvas.getBoundingClientRect();
          return [left + rect.x + rect.w / 2, top + graph.top(depth) - graph.box.scrollTop + 9];
        }
      }
    }, name);
    assert(at, `${name} is drawn`);
    await this.page.mouse.click(...at);
  }

  /** Names in the table, top to bottom. */
  names() {
    return this.page.$$eval('td.name button', buttons => buttons.map(button => button.textContent));
  }

  /** Cells of a function's row. */
  row(name) {
    return this.page.$$eval('#functions tbody tr', (rows, name) => {
      const row = rows.find(row => row.querySelector('.name button').textContent === name);
      return row && [...row.cells].slice(0, -1).map(cell => cell.textContent);
    }, name);
  }

  /** Chooses a download; its contents. */
  async download(form) {
    const before = new Set(readdirSync(this.directory)), { downloaded } = this;
    const value = await this.page.$$eval('#download option', (options, form) => options.find(option => option.textContent.startsWith(form))?.value, form);
    assert(value, `${form} can be downloaded`);
    await this.page.select('#download', value);
    // The browser says when: a file of that name, with nothing in it, is there before.
    for (let tries = 0; this.downloaded === downloaded; tries++, await wait(50)) assert(tries < 200, `${form} was not downloaded`);
    const name = readdirSync(this.directory).find(name => !before.has(name) && !name.startsWith('.'));
    return { name, bytes: readFileSync(join(this.directory, name)) };
  }

  async openFile(path) {
    const [chooser] = await Promise.all([this.page.waitForFileChooser(), this.page.click('#open')]);
    await chooser.accept([path]);
  }

  until(condition, ...given) {
    return this.page.waitForFunction(condition, { timeout: 30_000 }, ...given);
  }
}
