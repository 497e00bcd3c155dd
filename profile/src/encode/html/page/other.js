// Files that the page reads by itself: its own data, pages like this one, and the JSON that `format=json` gives.

/** Throws if it cannot be read here; whoever serves the page may know more formats. */
function readText(text) {
  const beginning = text.slice(0, 1000).trimStart();
  if (beginning.startsWith('<!doctype html>')) {
    const mark = '<script type="application/json" id="data">', from = text.indexOf(mark);
    if (from < 0) throw new Error('this page holds no profile');
    return Profile.ofPage(JSON.parse(text.slice(from + mark.length, text.indexOf('<' + '/script>', from))));
  }
  if (!beginning.startsWith('{')) throw new Error('this is neither a page nor JSON');
  const schema = /"schema"\s*:\s*"([^"]*)"/.exec(beginning)?.[1];
  if (schema === 'profile-recorder.page') return Profile.ofPage(JSON.parse(text));
  if (schema === 'profile-recorder.profile') return ofJson(parseExactly(text));
  throw new Error('this JSON is not Profile Recorder\'s');
}

/** Numbers that a double cannot hold come as BigInts, where the browser tells how they were written. */
function parseExactly(text) {
  if (!/[[,]\s*-?\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (key, value, context) =>
    typeof value === 'number' && !Number.isSafeInteger(value) && context && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value);
}

function ofJson(document) {
  const profile = new Profile(), names = [''], ids = new Map(), kinds = [NOTE], modules = [''];
  const places = { file: [], line: [] }, files = [], fileIds = new Map(), placeIds = new Map();
  const frames = document.frames.map(({ name, file, line = 0, mapping, address }) => {
    if (!ids.has(name)) {
      ids.set(name, names.length);
      names.push(name);
      const module = mapping === undefined ? '' : document.mappings[mapping].path.split('/').pop();
      modules.push(module);
      kinds.push(address === undefined && name.startsWith('[') ? NOTE : /^libc[.-]|^ld-linux/.test(module) ? 3 : 0);
    }
    if (file === undefined) return [ids.get(name), 0];
    if (!fileIds.has(file)) fileIds.set(file, files.push(file) - 1);
    const place = `${fileIds.get(file)}:${line}`;
    if (!placeIds.has(place)) {
      places.file.push(fileIds.get(file));
      placeIds.set(place, places.line.push(line));
    }
    return [ids.get(name), placeIds.get(place)];
  });
  // Nodes as they come; then in depth-first order.
  const nodes = [{ kids: new Map() }];
  const leaves = document.samples.map(({ stack }) => {
    let at = nodes[0];
    for (let i = stack.length - 1; i >= 0; i--) {
      const [name, place] = frames[stack[i]];
      let next = at.kids.get(name);
      if (!next) {
        next = { kids: new Map(), name, place };
        at.kids.set(name, next);
        nodes.push(next);
      }
      at = next;
    }
    return at;
  });
  const climb = [], frame = [], frameName = [], frameSet = [], pending = [[nodes[0], 0]];
  let before = -1;
  for (let number = 0; pending.length; number++) {
    const [node, depth] = pending.pop();
    node.number = number;
    if (number) {
      climb.push(before + 1 - depth);
      frame.push(frame.length);
      frameName.push(node.name);
      frameSet.push(node.place);
    }
    before = depth;
    for (const kid of node.kids.values()) pending.push([kid, depth + 1]);
  }
  profile.plant(climb, frame, frameName, frameSet);
  const groups = new Map();
  document.samples.forEach((sample, i) => {
    const key = JSON.stringify([sample.thread, sample.labels]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(i);
  });
  const order = [];
  profile.groups = [...groups.values()].map(samples => {
    const from = order.length, { thread, labels = {} } = document.samples[samples[0]];
    order.push(...samples.sort((a, b) => leaves[a].number - leaves[b].number));
    const named = Object.entries(labels).map(([key, value]) => [key, String(value)]);
    return { thread: thread === null ? null : document.threads[thread], labels: named, from, to: order.length };
  });
  profile.rows = Int32Array.from(order, sample => leaves[sample].number);
  const captions = { nanoseconds: 'ns', count: '' };
  profile.columns = document.sample_types.map(({ kind, unit }, i) => ({
    kind, unit, memory: /^(alloc|inuse|temporary)_/.test(kind),
    caption: [kind.replaceAll('_', ' '), captions[unit] ?? unit].filter(Boolean).join(', '),
    ...columnOf(order.map(sample => document.samples[sample].values[i])),
  }));
  return Object.assign(profile, {
    title: document.title ?? document.threads[0]?.process ?? 'Profile', about: '', comments: document.comments,
    first: document.default_sample_type, start: Number(document.start_unix_ns), duration: document.duration_ns,
    names, kinds: Uint8Array.from(kinds), modules, canonical: new Map(), files, places, sets: [],
  });
}
