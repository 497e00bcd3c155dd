// The page of a recorder: asks for the token, records, compares two recordings and a file, downloads, gives up.
import assert from 'node:assert/strict';
import { setTimeout as wait } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { withPage } from './browser.mjs';

const [what, address, token, file] = process.argv.slice(2);

await withPage(`recorder-${what}`, async (page, tools, requests) => {
  const referrers = [];
  page.on('request', request => referrers.push(request.headers().referer ?? ''));
  await page.goto(`${address}/`);
  if (token) {
    for (const given of ['wrong', token]) {
      await page.waitForSelector('#token[open]');
      await page.type('#token input', given);
      await page.keyboard.press('Enter');
      if (given === 'wrong') await tools.until(() => /not the token/.test(document.querySelector('#token p').textContent));
    }
  }
  await page.waitForSelector('#record:not([hidden])');
  assert.match(await tools.text('#title'), /\(pid \d+\)$/);
  assert.deepEqual(await page.$$eval('#record [name=mode] option', options => options.map(option => option.value)),
    ['cpu', 'wall', 'offcpu', 'allocs', 'heap', 'threads']);
  await tools.shot('start');
  await page.$eval('[name=seconds]', input => { input.value = '0.5'; });

  if (what === 'cancels') {
    await page.click('button.start');
    await page.waitForSelector('#record progress:not([hidden])');
    await tools.until(() => document.querySelector('#record progress').value > 0);
    await tools.shot('progress');
    await page.click('button.cancel');
    await tools.until(() => /Cancelled/.test(document.querySelector('#record output').textContent));
    assert.equal(await page.$eval('button.start', button => button.hidden), false);

    // Ended before its time, it is what there is, and says how long it was.
    await page.$eval('[name=seconds]', input => { input.value = '3600'; });
    await page.click('button.start');
    await tools.until(() => /^Recording, 3\d{3} s left$/.test(document.querySelector('#record output').textContent));
    await tools.shot('finish');
    await page.click('button.finish');
    await tools.until(() => !byId('shown').hidden);
    assert.deepEqual((await tools.names()).sort(), ['parse_json', 'render_page', 'start']);
    assert.match(await page.evaluate(() => sources.list.at(-1).name), /^cpu, \d{1,2}(\.\d)? s, /);
    assert.equal(await page.$eval('button.finish', button => button.hidden), true);
    return;
  }

  const record = async mode => {
    const before = await page.evaluate(() => sources.list.length);
    await page.select('#record [name=mode]', mode);
    await page.click('button.start');
    await tools.until(before => sources.list.length > before && !byId('shown').hidden && state.head === sources.list.at(-1), before);
  };
  await record('cpu');
  assert.deepEqual((await tools.names()).sort(), ['parse_json', 'render_page', 'start']);
  await tools.clickFrame('parse_json');
  assert.match(await tools.text('#detail'), /^parse_jsonTotal 10\.1 ms \(10,101,010 nanoseconds\) · 50\.0 %/);
  await tools.shot('recorded');

  // The same recording in every format, though nothing of it is kept by the process.
  const forms = await page.$$eval('#download option', options => options.map(option => option.textContent).filter(text => !/Download|picture/.test(text)));
  assert.equal(forms.length, 10);
  for (const form of forms) {
    const { name, bytes } = await tools.download(form);
    assert(name.endsWith(/\((.*)\)$/.exec(form)[1]), `${name}: ${form}`);
    const text = bytes[0] === 0x1f ? gunzipSync(bytes).toString('latin1') : bytes.toString('latin1');
    if (!form.startsWith('raw')) assert.match(text, /parse_json/, form);
  }
  // Chromium drops what a page downloads beyond ten files a second.
  await wait(1100);
  const { bytes } = await tools.download('picture');
  assert.equal(bytes.subarray(1, 4).toString(), 'PNG');
  const recordings = requests.filter(address => address.includes('/debug/pprof/')).length;
  assert.equal(recordings, 1);

  // Another recording, compared with the first; then with a file of a format that only the process reads.
  await record('cpu');
  await page.select('#base', '0');
  await tools.until(() => state.sides.length === 2);
  assert.match(await tools.text('#detail'), /^parse_jsonBase 10\.1 ms .*Head 10\.1 ms .*Change 0 ns/);
  await tools.openFile(file);
  await tools.until(() => state.base?.name.endsWith('.gz') && state.sides.length === 2);
  assert.deepEqual((await tools.row('parse_json')).slice(4), ['grown']);
  assert.deepEqual((await tools.row('of_the_file')).slice(4), ['gone']);
  await tools.shot('compared');

  // What cannot be recorded or read is told.
  await page.$eval('#record [name=thread]', input => { input.value = 'nobody'; });
  await record('cpu');
  await page.$eval('#record [name=mode]', select => { select.value = 'allocs'; select.dispatchEvent(new Event('change')); });
  await page.$eval('#record [name=interval]', input => { input.value = 'many'; });
  await page.click('button.start');
  await tools.until(() => /Cannot record: .*"interval"/.test(document.querySelector('#record output').textContent));

  assert(requests.every(to => to.startsWith(`${address}/`) || /^(blob|data):/.test(to)), requests.join());
  assert(!token || requests.every(to => !to.includes(token)));
  assert.deepEqual([...new Set(referrers)], ['']);
});
