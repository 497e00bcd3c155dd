// The page as a file: its numbers are the model's, and all of it works without a request.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { withPage } from './browser.mjs';

const [directory] = process.argv.slice(2);

/** Every function's values in every column, as texts. */
async function assertValues(page, expected) {
  const columns = await page.$$eval('#metrics button', buttons => buttons.length);
  assert.equal(columns, expected.length);
  for (const [column, functions] of expected.entries()) {
    await page.evaluate(column => document.querySelectorAll('#metrics button')[column].click(), column);
    const rows = await page.evaluate(() => table.rows.map(({ text, values }) => [text, ...values.map(String)]));
    const inOrder = rows => rows.sort((a, b) => JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);
    assert.deepEqual(inOrder(rows), inOrder(functions));
  }
}

await withPage('file', async (page, tools, requests) => {
  for (const name of ['large', 'odd', 'wide', 'cpu']) {
    await page.goto(`file://${directory}/${name}.html`);
    await tools.shown();
    await assertValues(page, JSON.parse(readFileSync(`${directory}/${name}.json`)));
  }
  // Now cpu, CPU time.
  assert.match(await tools.text('#comments'), /lost: 3 events/);
  assert.match(await tools.text('#about'), /my app \(pid 4711\)/);
  await tools.shot('icicle');

  // Zoom by mouse, with file and line; then by keys.
  await tools.clickFrame('app::parse;json');
  const detail = await tools.text('#detail');
  assert.match(detail, /Total 90\.0 ms \(90,000,001 nanoseconds\) · 64\.3 %/);
  assert.match(detail, /\/src\/parse\.rs:40/);
  assert.equal(await page.evaluate(() => graph.zoomed.text), 'app::parse;json');
  await page.keyboard.press('Escape');
  assert.equal(await page.evaluate(() => graph.zoomed.text), 'all');
  await page.keyboard.press('g');
  for (const key of ['ArrowDown', 'ArrowDown']) await page.keyboard.press(key);
  assert.match(await tools.text('#detail'), /^app::parse;json/);
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => graph.zoomed.text), 'app::parse;json');
  await page.keyboard.press('Backspace');
  assert.equal(await page.evaluate(() => graph.zoomed.text), 'app::main');
  await page.keyboard.press('Home');
  await page.keyboard.press('Enter');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowRight');
  assert.match(await tools.text('#detail'), /^\[lost: store full\]/);

  // Search: the share of all, and the table follows.
  await page.keyboard.press('/');
  await page.keyboard.type('parse');
  assert.equal(await tools.text('#found'), '1 functions in 64.3 % (90.0 ms)');
  assert.deepEqual(await tools.names(), ['app::parse;json']);
  await tools.shot('search');
  await page.keyboard.press('Escape');
  assert.equal(await tools.text('#found'), '');

  // A metric keeps the zoom.
  await tools.clickFrame('app::main');
  await page.evaluate(() => document.querySelectorAll('#metrics button')[0].click());
  assert.match(await tools.text('#detail'), /^app::mainTotal 10 · 71\.4 %/);
  assert.equal(await page.$eval('#metrics [aria-selected=true]', tab => tab.firstChild.textContent), 'Samples');
  await page.keyboard.press('Escape');

  // From the leaves on, upwards, by thread and by label, one thread alone.
  await page.keyboard.press('c');
  assert.deepEqual(await page.evaluate(() => graph.view.root.kids().map(kid => [kid.text, kid.value(0)])),
    [['memcpy', 9], ['[lost: store full]', 3], ['[unknown]+0x7fff00001234', 1], ['libc.so.6+0x30000', 1]]);
  await tools.clickFrame('memcpy');
  assert.deepEqual(await page.evaluate(() => graph.zoomed.kids().map(kid => kid.text)), ['core::ops::Call<(u8, i32)>::call']);
  await page.keyboard.press('f');
  await tools.shot('callers-flame');
  await page.keyboard.press('f');
  await page.keyboard.press('c');
  await page.keyboard.press('Escape');
  await page.select('#group', 'thread');
  assert.deepEqual(await page.evaluate(() => graph.view.root.kids().map(kid => [kid.text, kid.value(0)])),
    [['main', 8], ['[no thread]', 3], ['worker 7', 3]]);
  await tools.shot('threads');
  await page.select('#group', 'label request');
  assert.deepEqual(await page.evaluate(() => graph.view.root.kids().map(kid => kid.text)), ['[no request]', 'GET /']);
  await page.select('#group', '');
  await page.select('#only', JSON.stringify(['label shard', '3']));
  assert.match(await tools.text('#detail'), /^allTotal 2/);
  await page.select('#only', '');

  // A file of the same functions, dropped half of its time: what changed, in the table and in the graph.
  for (const [other, was] of [['half.json', 1], ['half.html', 1]]) {
    await tools.openFile(`${directory}/${other}`);
    await tools.until(was => state.sides.length === 2 && state.sides[0].total !== was, was);
    assert.deepEqual(await tools.row('memcpy'), ['+5', '+5', '4', '9', 'grown'], other);
    assert.deepEqual(await tools.row('only_in_base'), ['-7', '-7', '7', '0', 'gone'], other);
    assert.deepEqual((await tools.row('[lost: store full]')).slice(4), ['new'], other);
    await page.evaluate(() => graph.zoom(graph.view.root.kids().find(kid => kid.text === 'only_in_base')));
    assert.match(await tools.text('#detail'), /Base 7 .*Head 0 .*Change -7/);
    await page.evaluate(() => graph.zoom(graph.view.root));
    await tools.shot('compared');
    if (other === 'half.json') await page.select('#base', '');
  }
  await page.click('#swap');
  assert.deepEqual(await tools.row('memcpy'), ['-5', '-5', '9', '4', 'shrunk']);
  await page.click('#swap');
  await page.select('#base', '');

  const { name, bytes } = await tools.download('collapsed');
  assert.equal(name, 'my-app.collapsed');
  assert.equal(bytes.toString().trim().split('\n').reduce((sum, line) => sum + Number(line.split(' ').pop()), 0), 14);

  await page.click('#theme');
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  await tools.shot('dark');

  // Every control is reached by Tab and has a name.
  const nameless = await page.$$eval('button, select, input:not([type=file]), canvas', all => all
    .filter(control => control.offsetParent && !control.textContent.trim() && !control.getAttribute('aria-label') && !control.labels?.length)
    .map(control => control.outerHTML));
  assert.deepEqual(nameless, []);
  assert(requests.every(address => /^(file|blob|data):/.test(address)), requests.join());
});
