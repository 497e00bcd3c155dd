// `profrec view`: two files are compared, others are chosen, any readable file is opened, every format is downloaded.
import assert from 'node:assert/strict';
import { withPage } from './browser.mjs';

const [address, third] = process.argv.slice(2);

await withPage('viewer', async (page, tools, requests) => {
  await page.goto(address);
  await tools.shown();
  assert.equal(await page.$eval('#record', form => form.hidden), true);
  assert.match(await tools.text('#about'), /compared with .*base\.folded/);
  assert.deepEqual(await tools.row('parse'), ['+30', '+30', '10', '40', 'grown']);
  assert.deepEqual(await tools.row('old'), ['-5', '-5', '5', '0', 'gone']);
  assert.deepEqual(await tools.row('fresh'), ['+2', '+2', '0', '2', 'new']);
  await tools.shot('compared');
  await page.click('#shares');
  assert.match(await tools.text('#detail'), /Base 15 .*Head 42/, 'values stay what they are');
  await page.click('#shares');
  await page.select('#base', '');
  await tools.until(() => state.sides.length === 1);
  assert.deepEqual(await tools.row('parse'), ['40', '95.2 %', '40', '95.2 %']);
  await page.select('#head', '0');
  await tools.until(() => state.sides[0].total === 15);
  await tools.openFile(third);
  await tools.until(() => state.base !== null);
  assert.deepEqual(await tools.row('parse'), ['-1', '-1', '11', '10', 'shrunk']);
  const { name, bytes } = await tools.download('svg');
  assert.equal(name, 'base.folded.svg');
  assert.match(bytes.toString(), /<svg/);
  assert(requests.every(to => to.startsWith(address) || /^(blob|data):/.test(to)), requests.join());
});
