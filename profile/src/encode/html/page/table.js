// The table of functions, of one profile or of what changed.

const AT_FIRST = 100;

class Table {
  constructor(box, chosen) {
    Object.assign(this, { box, chosen, sorted: 0, rows: [], most: AT_FIRST });
    this.head = box.querySelector('thead tr');
    this.body = box.querySelector('tbody');
    this.more = box.querySelector('button.more');
    this.more.onclick = () => { this.most += 10 * AT_FIRST; this.fill(); };
  }

  /** `sides`: base and head, or one. `scale`: what a base's value is worth, where shares are compared. */
  show(sides, scale) {
    Object.assign(this, { sides, scale, most: AT_FIRST });
    const compared = sides.length > 1;
    this.rows = compared ? changes(sides, scale) : functions(sides[0]);
    this.titles = compared
      ? [['Change', 'In the function itself: head less base'], ['Total change', 'With what it called'], ['Base', 'In the base'], ['Head', 'In the head']]
      : [['Self', 'In the function itself'], ['Total', 'In the function and what it called']];
    if (this.sorted >= this.titles.length) this.sorted = 0;
    this.head.replaceChildren(...this.titles.map(([title, what], i) => this.heading(title, what, i)),
      ...(compared ? [element('th', 'Status')] : []), element('th', 'Function', 'name'));
    this.sort();
  }

  heading(title, what, number) {
    const th = element('th'), button = element('button', title);
    if (this.titles.length === 2) th.colSpan = 2;
    button.title = what;
    button.onclick = () => { this.sorted = number; this.sort(); };
    th.append(button);
    return th;
  }

  sort() {
    [...this.head.children].forEach((th, i) => {
      if (i === this.sorted) th.setAttribute('aria-sort', 'descending'); else th.removeAttribute('aria-sort');
    });
    const size = row => Math.abs(Number(row.values[this.sorted]));
    const next = this.sorted === 0 ? 1 : 0, other = row => Math.abs(Number(row.values[next]));
    this.rows.sort((a, b) => size(b) - size(a) || other(b) - other(a) || (a.text < b.text ? -1 : 1));
    this.fill();
  }

  /** `accepts`: whether a name is searched; null: all are. */
  filter(accepts) {
    this.accepts = accepts;
    this.most = AT_FIRST;
    this.fill();
  }

  fill() {
    const rows = this.accepts ? this.rows.filter(row => this.accepts(row.text)) : this.rows;
    this.body.replaceChildren(...rows.slice(0, this.most).map(row => this.row(row)));
    this.more.hidden = rows.length <= this.most;
    this.more.textContent = `${digits(rows.length - this.most)} more`;
    this.count = rows.length;
  }

  row({ text, values, place, status, kind }) {
    const tr = element('tr'), { unit } = this.sides[0].column, whole = this.sides.at(-1).total;
    values.forEach((value, i) => {
      const change = this.sides.length > 1 && i < 2;
      const td = element('td', change ? signed(shown(value, unit), value) : shown(value, unit));
      td.title = shownExactly(value, unit);
      if (change) td.className = value > 0 ? 'grown' : value < 0 ? 'shrunk' : '';
      tr.append(td);
      if (this.sides.length === 1) tr.append(element('td', share(value, whole), 'share'));
    });
    if (status) tr.append(element('td', status, status));
    const name = element('td', '', 'name'), button = element('button', text || '[unnamed]');
    const swatch = element('i', '', `kind${kind}`);
    swatch.title = KINDS[kind];
    button.onclick = () => this.chosen(text);
    name.append(swatch, button);
    if (place) name.append(element('small', place));
    tr.append(name);
    return tr;
  }
}

function element(tag, text = '', className = '') {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function functions(side) {
  const { own, total } = side.functions(), { names, kinds } = side.profile, place = firstPlaces(side.profile);
  const rows = [];
  for (let name = 0; name < names.length; name++) {
    if (own[name] || total[name]) rows.push({ text: names[name], values: [own[name], total[name]], kind: kinds[name], place: place(name) });
  }
  return rows;
}

/** The first place of each name, found when one is asked for. */
function firstPlaces(profile) {
  let places = null;
  return name => {
    if (!places) {
      places = new Int32Array(profile.names.length);
      for (let node = profile.set.length - 1; node > 0; node--) if (profile.set[node]) places[profile.name[node]] = node;
    }
    return places[name] ? profile.placesOf(places[name])[0] : '';
  };
}

/** Functions by what they have on both sides: own change, total change, base, head. */
function changes(sides, scale) {
  const rows = new Map();
  sides.forEach((side, number) => {
    const { own, total } = side.functions(), { profile } = side, place = firstPlaces(profile);
    const worth = value => number === 0 && scale !== 1 ? Math.round(Number(value) * scale) : value;
    profile.names.forEach((text, name) => {
      if (!own[name] && !total[name]) return;
      const key = profile.canonicalName(name);
      if (!rows.has(key)) rows.set(key, { own: [0, 0], total: [0, 0] });
      const row = rows.get(key);
      Object.assign(row, { text: key, kind: profile.kinds[name], place: place(name) });
      row.own[number] = plus(row.own[number], worth(own[name]));
      row.total[number] = plus(row.total[number], worth(total[name]));
    });
  });
  return [...rows.values()].map(({ own, total, ...row }) => ({
    ...row,
    values: [minus(own[1], own[0]), minus(total[1], total[0]), total[0], total[1]],
    status: !total[0] ? 'new' : !total[1] ? 'gone' : total[1] > total[0] ? 'grown' : total[1] < total[0] ? 'shrunk' : own[0] === own[1] ? 'same' : 'moved',
  }));
}
