'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const tabs = document.querySelector('nav'), body = document.querySelector('tbody'), filter = document.getElementById('filter');
const more = document.getElementById('more'), SHOWN = 100;
let column = data.first, sort = 0;

function scaled(value, units) {
  let unit = 0, size = Math.abs(value);
  while (unit + 1 < units.length && size >= units[unit][0]) { size /= units[unit][0]; unit++; }
  const digits = unit && size < 100 ? (size < 10 ? 2 : 1) : 0;
  return (value < 0 ? '-' : '') + size.toFixed(digits) + ' ' + units[unit][1];
}
function show(value, unit) {
  if (unit === 'bytes') return scaled(value, [[1024, 'B'], [1024, 'KiB'], [1024, 'MiB'], [1024, 'GiB'], [0, 'TiB']]);
  if (unit === 'nanoseconds') return scaled(value, [[1000, 'ns'], [1000, 'µs'], [1000, 'ms'], [0, 's']]);
  return value.toLocaleString('en') + (unit === 'count' ? '' : ' ' + unit);
}
function share(value, total) { return total ? (100 * value / total).toFixed(1) + ' %' : ''; }
function cell(row, text, name) { const td = row.insertCell(); td.textContent = text; if (name) td.className = name; }

function table() {
  const { total, unit } = data.columns[column], wanted = filter.value.toLowerCase();
  const rows = data.functions.filter(f => (f[1][column] || f[2][column]) && f[0].toLowerCase().includes(wanted));
  rows.sort((a, b) => b[1 + sort][column] - a[1 + sort][column] || b[2 - sort][column] - a[2 - sort][column]);
  body.replaceChildren();
  for (const f of rows.slice(0, SHOWN)) {
    const row = body.insertRow();
    for (const value of [f[1][column], f[2][column]]) {
      cell(row, show(value, unit));
      cell(row, share(value, total), 'share');
    }
    cell(row, f[0]);
  }
  more.textContent = rows.length > SHOWN ? `${rows.length - SHOWN} more` : '';
}
function choose(next) {
  column = next;
  [...tabs.children].forEach((tab, i) => tab.setAttribute('aria-selected', i === column));
  document.querySelectorAll('iframe').forEach((frame, i) => {
    frame.hidden = i !== column;
    if (!frame.hidden && frame.dataset.graph) {
      frame.srcdoc = frame.dataset.graph;
      delete frame.dataset.graph;
    }
  });
  const share = data.columns[column].not_drawn_below;
  document.getElementById('drawn').textContent = share > 0.0005 ? `Frames below ${(100 * share).toPrecision(2)} % are not drawn.` : '';
  table();
}

data.columns.forEach((c, i) => {
  const tab = document.createElement('button'), total = document.createElement('small');
  tab.textContent = c.caption;
  total.textContent = show(c.total, c.unit);
  tab.append(total);
  tab.setAttribute('role', 'tab');
  tab.onclick = () => choose(i);
  tabs.append(tab);
});
document.querySelectorAll('th button').forEach((button, i) => {
  button.onclick = () => {
    sort = i;
    document.querySelectorAll('th').forEach(th => th.removeAttribute('aria-sort'));
    button.parentElement.setAttribute('aria-sort', 'descending');
    table();
  };
});
filter.oninput = table;
const about = [data.about];
if (data.start) about.push(new Date(data.start / 1e6).toLocaleString());
if (data.duration) about.push(show(data.duration, 'nanoseconds'));
document.getElementById('about').textContent = about.filter(Boolean).join(' · ');
choose(column);
