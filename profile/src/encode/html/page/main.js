// The page: what is chosen, and what follows from it.

const byId = id => document.getElementById(id);
const host = document.documentElement.dataset.host;
const state = { head: null, base: null, kind: null, reversed: false, view: null, sides: [] };

const sources = new Sources(host, () => offerSources());
const graph = new Graph(byId('graph'), {
  pointed: (frame, event, narrow) => tip(frame, event, narrow),
  selected: frame => detail(frame),
  zoomed: frame => { byId('unzoom').hidden = !frame.parent; detail(frame); },
});
const table = new Table(byId('functions'), text => { byId('search').value = `"${text}"`; search(); });

function theme(chosen) {
  document.documentElement.dataset.theme = chosen ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  graph.draw();
}

function tell(text) {
  byId('said').textContent = text;
  byId('said').hidden = !text;
}

/** Does what may fail, and tells why it did. */
async function attempt(work) {
  try {
    tell('');
    await work();
  } catch (error) {
    tell(error.message);
  }
}

// Profiles.

function offerSources() {
  const name = source => source?.name ?? '';
  const options = sources.list.map((source, i) => ({ text: source.name, value: String(i) }));
  offer(byId('head'), options, String(sources.list.indexOf(state.head)));
  offer(byId('base'), [{ text: 'nothing', value: '' }, ...options], String(sources.list.indexOf(state.base)));
  byId('head').parentElement.hidden = options.length < 2;
  byId('base').parentElement.hidden = !options.length;
  byId('swap').hidden = byId('shares').hidden = !state.base;
  byId('base').title = name(state.base);
}

async function show(head, base) {
  byId('waits').hidden = false;
  try {
    await sources.load(head);
    if (base) await sources.load(base);
  } finally {
    byId('waits').hidden = true;
  }
  Object.assign(state, { head, base });
  offerSources();
  about();
  offerColumns();
  offerRespects();
  update();
}

function about() {
  const { profile } = state.head, said = [profile.about];
  document.title = profile.title;
  byId('title').textContent = profile.title;
  if (profile.start) said.push(new Date(profile.start / 1e6).toLocaleString());
  if (profile.duration) said.push(shown(profile.duration, 'nanoseconds'));
  if (state.base) said.push(`compared with ${state.base.name}`);
  byId('about').textContent = said.filter(Boolean).join(' · ');
  const comments = [...profile.comments, ...(state.base ? state.base.profile.comments.map(comment => `base: ${comment}`) : [])];
  byId('comments').replaceChildren(...comments.map(comment => element('li', comment)));
  byId('comments').hidden = !comments.length;
  byId('shown').hidden = false;
}

function column() {
  const { columns, first } = state.head.profile, chosen = columns.findIndex(column => column.kind === state.kind);
  return chosen < 0 ? Math.min(first, columns.length - 1) : chosen;
}

function offerColumns() {
  const { columns } = state.head.profile;
  byId('metrics').replaceChildren(...columns.map(({ kind, caption, unit, low, high }, number) => {
    const tab = element('button', caption), chosen = number === column();
    tab.setAttribute('role', 'tab');
    tab.setAttribute('aria-selected', chosen);
    tab.tabIndex = chosen ? 0 : -1;
    tab.append(element('small', shown(sumOf(low, high), unit)));
    tab.onclick = () => { state.kind = kind; offerColumns(); update(); };
    tab.onkeydown = event => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      state.kind = columns[(number + step + columns.length) % columns.length].kind;
      offerColumns();
      update();
      byId('metrics').querySelector('[aria-selected=true]').focus();
    };
    return tab;
  }));
}

function sumOf(low, high) {
  return whole(low.reduce((a, b) => a + b, 0), high ? high.reduce((a, b) => a + b, 0) : 0);
}

function offerRespects() {
  const { profile } = state.head, all = respects(profile);
  // At first processes are told apart, as in all other formats.
  const grouped = state.view || !all.has('process') ? byId('group').value : 'process';
  offer(byId('group'), [{ text: 'nothing', value: '' }, ...[...all.keys()].map(value => ({ text: value, value }))], grouped);
  offer(byId('only'), [{ text: 'everything', value: '' }, ...[...all].map(([what, valueOf]) => ({
    text: what,
    within: divided(profile.groups, valueOf).map(([text]) => ({ text, value: JSON.stringify([what, text]) })),
  }))]);
  byId('group').parentElement.hidden = byId('only').parentElement.hidden = !all.size;
}

/** The groups of a profile that are to be counted; null: all. */
function only(profile) {
  if (!byId('only').value) return null;
  const [what, text] = JSON.parse(byId('only').value), valueOf = respects(profile).get(what);
  return valueOf ? divided(profile.groups, valueOf).find(([value]) => value === text)?.[1] ?? [] : [];
}

// What is drawn.

function update() {
  const { head, base } = state, { profile } = head, number = column(), groups = only(profile);
  if (!profile.columns.length) return tell('There is nothing in this profile.');
  const way = graph.zoomed?.path().slice(1).map(frame => frame.text) ?? [];
  const sides = [new Side(profile, number, groups, true)];
  const other = base ? base.profile.columnLike(profile.columns[number]) : -1;
  if (base && other < 0) tell(`The base has no ${profile.columns[number].caption}: nothing to compare.`);
  if (other >= 0) {
    sides.unshift(new Side(base.profile, other, only(base.profile), true));
    if (pressed('shares') && sides[0].weight) sides[0].scale = sides[1].weight / sides[0].weight;
  }
  const valueOf = sides.length === 1 && respects(profile).get(byId('group').value);
  byId('group').disabled = sides.length > 1;
  const divisions = valueOf && divided(groups ?? profile.groups, valueOf)
    .map(([label, groups]) => ({ label, side: new Side(profile, number, groups, false) }));
  Object.assign(state, { sides, view: new View(sides, { reversed: pressed('callers'), groups: divisions }) });
  graph.up = pressed('flame');
  graph.show(state.view);
  table.show(sides, sides[0].scale);
  search();
  rezoom(way);
  legend();
  offerForms();
}

/** Zooms to where the view before was, as far as that is there. */
function rezoom(way) {
  let frame = state.view.root;
  for (const text of way) {
    const next = frame.kids().find(kid => kid.text === text);
    if (!next) break;
    frame = next;
  }
  graph.zoom(frame);
  byId('unzoom').hidden = !frame.parent;
  detail(frame);
}

function search() {
  const accepts = searched(byId('search').value), { sides } = state;
  const matches = accepts && sides.map(({ profile }) => Uint8Array.from(profile.names, name => accepts(name)));
  graph.matches = matches;
  graph.draw();
  table.filter(accepts);
  byId('found').textContent = accepts ? `${digits(table.count)} functions in ${sides.map((side, i) => {
    const sum = side.within(matches[i]);
    return `${share(sum, side.total) || '0 %'} (${shown(sum, side.column.unit)})`;
  }).join(', now ')}` : '';
}

/** What is told of a frame, in lines. */
function facts(frame) {
  const { sides } = frame, { unit } = sides[0].column, values = sides.map((_, i) => frame.value(i)), all = state.sides.map(side => side.total);
  const lines = [];
  if (sides.length > 1) {
    const [base, head] = values, change = minus(head, base);
    lines.push(`Base ${shownExactly(base, unit)} · ${share(base, all[0])}`, `Head ${shownExactly(head, unit)} · ${share(head, all[1])}`,
      `Change ${signed(shownExactly(change, unit), change)}${Number(base) ? ` · ${signed(share(change, base), change)}` : ' · new'}`);
  } else {
    const zoomed = graph.zoomed?.parent ? ` · ${share(values[0], graph.zoomed.value(0))} of what is zoomed` : '';
    lines.push(`Total ${shownExactly(values[0], unit)} · ${share(values[0], all[0])}${zoomed}`);
    const own = frame.own(0);
    if (frame.label === null) lines.push(`Self ${shownExactly(own, unit)} · ${share(own, all[0])}`);
  }
  const places = frame.places(), where = [frame.module, frame.label === null ? KINDS[frame.kind] : ''].filter(Boolean);
  if (places.length) lines.push(places.slice(0, 6).join(', ') + (places.length > 6 ? ', …' : ''));
  if (where.length) lines.push(where.join(' · '));
  return lines;
}

function detail(frame) {
  byId('detail').replaceChildren(element('strong', frame.text), ...facts(frame).map(line => element('span', line)));
}

function tip(frame, event, narrow) {
  const box = byId('tip');
  box.hidden = !frame && !narrow;
  if (box.hidden) return;
  if (frame) box.replaceChildren(element('strong', frame.text), ...facts(frame).map(line => element('span', line)));
  else box.replaceChildren(element('span', 'Frames too narrow to draw: zoom in.'));
  const x = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8), below = event.clientY + 18;
  box.style.left = `${Math.max(4, x)}px`;
  box.style.top = `${below + box.offsetHeight > innerHeight ? event.clientY - box.offsetHeight - 10 : below}px`;
}

function legend() {
  const { sides } = state, { unit } = sides[0].column;
  const entry = (className, text) => { const span = element('span'); span.append(element('i', '', className), text); return span; };
  const kinds = new Set(sides[0].profile.kinds.subarray(1));
  const entries = sides.length > 1 ? [entry('more', 'more than in the base'), entry('less', 'less')]
    : KINDS.map((kind, i) => kinds.has(i) ? entry(`kind${i}`, kind) : null).filter(Boolean);
  if (sides.some(side => side.negative)) entries.push(element('span', `Negative values have no width. In all: ${shownExactly(sides.at(-1).total, unit)}.`));
  byId('legend').replaceChildren(...entries);
}

// Downloads.

function offerForms() {
  const forms = sources.forms(state.head, state.sides.at(-1));
  offer(byId('download'), [{ text: 'Download…', value: '' }, ...forms.map(([name, extension], i) => ({ text: `${name} (${extension})`, value: String(i) })),
    { text: 'picture (.png)', value: 'png' }], '');
  byId('download').onchange = event => attempt(async () => {
    const chosen = event.target.value, name = state.head.profile.title.replace(/[^\w.-]+/g, '-') || 'profile';
    event.target.value = '';
    if (chosen === 'png') return graph.canvas.toBlob(blob => save(blob, `${name}.png`));
    const [, extension, make] = forms[chosen];
    save(await make(), name + extension);
  });
}

// Controls.

function pressed(id) {
  return byId(id).getAttribute('aria-pressed') === 'true';
}

function press(id) {
  byId(id).setAttribute('aria-pressed', !pressed(id));
  update();
}

for (const id of ['callers', 'flame', 'shares']) byId(id).onclick = () => press(id);
for (const id of ['group', 'only']) byId(id).onchange = () => update();
byId('head').onchange = event => attempt(() => show(sources.list[event.target.value], state.base));
byId('base').onchange = event => attempt(() => show(state.head, event.target.value === '' ? null : sources.list[event.target.value]));
byId('swap').onclick = () => attempt(() => show(state.base, state.head));
byId('unzoom').onclick = () => { graph.zoom(state.view.root); graph.select(state.view.root); };
byId('search').oninput = search;
byId('theme').onclick = () => theme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
byId('keys').onclick = () => byId('help').showModal();
byId('open').onclick = () => byId('file').click();
byId('file').onchange = event => openFiles([...event.target.files]);

/** The first file is shown; when something is shown already, it is compared with. */
function openFiles(files) {
  return attempt(async () => {
    for (const file of files) {
      const source = await sources.open(file, [state.head, state.base]);
      await (state.head ? show(state.head, source) : show(source, null));
    }
  });
}

addEventListener('dragover', event => event.preventDefault());
addEventListener('drop', event => { event.preventDefault(); openFiles([...event.dataTransfer.files]); });
addEventListener('keydown', event => {
  const typing = event.target.matches('input, select, textarea'), dialog = document.querySelector('dialog[open]');
  if (dialog || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === 'Escape' && state.view) {
    if (byId('search').value) { byId('search').value = ''; search(); } else byId('unzoom').click();
    if (typing) graph.canvas.focus();
    return;
  }
  if (typing) return;
  const ways = { '/': () => byId('search').focus(), g: () => graph.canvas.focus(), c: () => press('callers'), f: () => press('flame'), '?': () => byId('keys').click() };
  if (ways[event.key] && (state.view || event.key === '?')) { event.preventDefault(); ways[event.key](); }
});

// The beginning.

async function begin() {
  const data = byId('data');
  if (data) {
    const inside = JSON.parse(data.textContent), pairs = inside.schema === 'profile-recorder.comparison' ? inside.pairs : [[null, inside]];
    const added = pairs.map(pair => pair.map(document => document && sources.add({ name: document.title, document })));
    if (added.length) await show(added[0][1], added[0][0]);
    return;
  }
  const { process = '', modes, files = [], formats } = await (await ask('page/info')).json();
  Object.assign(sources, { formats, process });
  if (process) byId('title').textContent = process;
  if (modes) {
    new Recording(byId('record'), modes, async source => {
      const before = state.base;
      await sources.load(source);
      sources.add(source, [state.head, state.base]);
      await show(source, before);
    });
  }
  files.forEach((name, index) => sources.add({ name, index }));
  if (sources.list.length) await show(sources.list.at(files.length === 2 ? 1 : 0), files.length === 2 ? sources.list[0] : null);
}

theme();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => theme());
attempt(begin);
