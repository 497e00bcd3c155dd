// How long the page takes to draw a large profile for the first time, and whatever a reader does then. For benches/benches/page.rs.
import { withPage } from './browser.mjs';

const [file, rounds] = process.argv.slice(2), all = {};
const add = (what, time) => (all[what] ??= []).push(time);

/** Milliseconds until what the text does is drawn; all of it happens in one go. */
const timed = (page, act) => page.evaluate(`(() => { const began = performance.now(); ${act}; return performance.now() - began; })()`);

for (let round = 0; round < Number(rounds); round++) {
  await withPage('speed', async (page, tools) => {
    await page.goto(`file://${file}`);
    await tools.shown();
    add('first paint, from the start of loading', await page.evaluate(() => performance.getEntriesByName('drawn')[0].startTime));
    // To a narrower and narrower frame, each time the one at a third of what is drawn.
    for (let step = 0; step < 12; step++) {
      add('zoom', await timed(page, `
        const below = graph.rows.flat().filter(({ frame }) => frame && frame.depth > graph.zoomed.depth);
        if (below.length) graph.zoom(below[Math.floor(below.length / 3)].frame);`));
    }
    add('zoom out to the root', await timed(page, 'graph.zoom(state.view.root)'));
    add('search', await timed(page, 'byId("search").value = "function_1"; search()'));
    await page.evaluate(() => { byId('search').value = ''; search(); });
    add('another metric', await timed(page, 'document.querySelector("#metrics button").click()'));
    add('callers', await timed(page, 'byId("callers").click()'));
    await page.evaluate(() => byId('callers').click());
    add('by thread', await timed(page, 'byId("group").value = "thread"; byId("group").onchange()'));
  });
}
console.log(`${'milliseconds'.padEnd(42)} median    most`);
for (const [what, times] of Object.entries(all)) {
  times.sort((a, b) => a - b);
  console.log(what.padEnd(42), times[times.length >> 1].toFixed(0).padStart(6), times.at(-1).toFixed(0).padStart(7));
}
