// What samples can be told apart by: threads, processes, labels.

const MOST_VALUES = 200;

/** By name: what a group is called in each respect. */
function respects(profile) {
  const threads = profile.groups.map(group => group.thread), found = new Map();
  const several = name => new Set(threads.filter(Boolean).map(name)).size > 1;
  const of = (what, name) => found.set(what, group => group.thread ? name(group.thread) : `[no ${what}]`);
  if (several(thread => thread.pid + thread.process)) of('process', thread => thread.pid ? `${thread.process} (${thread.pid})` : thread.process);
  if (threads.some(Boolean)) of('thread', thread => thread.name);
  if (several(thread => thread.name + thread.tid) && threads.some(thread => thread?.tid)) of('thread id', thread => `${thread.name} (${thread.tid})`);
  for (const { labels } of profile.groups) {
    for (const [key] of labels) {
      if (found.has(`label ${key}`)) continue;
      found.set(`label ${key}`, group => group.labels.find(label => label[0] === key)?.[1] ?? `[no ${key}]`);
    }
  }
  return found;
}

/** Groups by their value in one respect; the many small ones together. */
function divided(groups, valueOf) {
  const values = new Map();
  for (const group of groups) {
    const value = valueOf(group);
    if (!values.has(value)) values.set(value, []);
    values.get(value).push(group);
  }
  const rows = groups => groups.reduce((sum, { from, to }) => sum + to - from, 0);
  const sorted = [...values].sort((a, b) => rows(b[1]) - rows(a[1]));
  const rest = sorted.splice(MOST_VALUES);
  if (rest.length) sorted.push([`[${rest.length} others]`, rest.flatMap(([, groups]) => groups)]);
  return sorted;
}

/** Fills a select; keeps what is chosen if it is still there. */
function offer(select, options, chosen = select.value) {
  select.replaceChildren(...options.map(({ text, value, within }) => {
    if (!within) return Object.assign(element('option', text), { value });
    const group = element('optgroup');
    group.label = text;
    group.append(...within.map(({ text, value }) => Object.assign(element('option', text), { value })));
    return group;
  }));
  select.value = chosen;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}

/** Names that are searched: part of a name, "a whole name", or /an expression/. Null: nothing is searched. */
function searched(text) {
  if (!text) return null;
  if (/^".+"$/.test(text)) return name => name === text.slice(1, -1);
  if (/^\/.+\/$/.test(text)) {
    try {
      const expression = new RegExp(text.slice(1, -1), 'iu');
      return name => expression.test(name);
    } catch {
      return () => false;
    }
  }
  const part = text.toLowerCase();
  return name => name.toLowerCase().includes(part);
}
