// A profile: a prefix tree of functions in depth-first order, and what was measured at its nodes.

const KINDS = ['own code', 'standard library', 'runtime', 'kernel and libc', 'allocator', 'note', 'allocation'];
const NOTE = 5, ALLOCATION = 6;

/**
 * title, about, start, duration, comments; columns: [{kind, unit, caption, memory, low, high}], first;
 * names, kinds, modules (by name); parent, end, name, set (by node, 0 is the root; the nodes below x are x + 1 to end[x] - 1);
 * groups: [{thread, labels, from, to}], rows: the node of each row.
 */
class Profile {
  static ofPage(document) {
    if (document.schema !== 'profile-recorder.page') throw new Error('this is no profile');
    if (document.version !== 1) throw new Error(`this profile is of version ${document.version}, known is 1`);
    const profile = new Profile();
    const { title, about, comments, first, names, modules } = document;
    Object.assign(profile, { title, about, comments, first, names });
    profile.document = document;
    profile.start = document.start_unix_ns;
    profile.duration = document.duration_ns;
    profile.kinds = Uint8Array.from(document.kinds, digit => digit.charCodeAt(0) - 48);
    profile.modules = Array.from(unsignedColumn(document.module), module => modules[module]);
    profile.canonical = new Map(document.canonical);
    profile.files = document.files;
    profile.places = { file: unsignedColumn(document.places.file), line: unsignedColumn(document.places.line) };
    profile.sets = document.sets;
    const frameName = unsignedColumn(document.frames.name), frameSet = unsignedColumn(document.frames.set);
    profile.plant(unsignedColumn(document.nodes.climb), unsignedColumn(document.nodes.frame), frameName, frameSet);
    profile.rows = unsignedColumn(document.rows.node);
    let from = 0;
    profile.groups = document.groups.map(({ thread, labels, rows }) => {
      const group = { thread: thread === null ? null : document.threads[thread], labels, from, to: from + rows };
      for (let i = from + 1; i < group.to; i++) profile.rows[i] += profile.rows[i - 1];
      from = group.to;
      return group;
    });
    profile.columns = document.columns.map((column, i) =>
      ({ ...column, ...signedColumn(document.rows.values[i], profile.rows.length, column.wide) }));
    return profile;
  }

  /** Makes the tree of how many levels lie between each node's parent and the node before. */
  plant(climb, frame, frameName, frameSet) {
    const nodes = climb.length + 1, path = [0];
    this.parent = new Int32Array(nodes);
    this.end = new Int32Array(nodes);
    this.name = new Int32Array(nodes);
    this.set = new Int32Array(nodes);
    let depth = 0;
    for (let node = 1; node < nodes; node++) {
      const above = depth - climb[node - 1];
      for (; depth > above; depth--) this.end[path[depth]] = node;
      this.parent[node] = path[depth];
      path[++depth] = node;
      this.name[node] = frameName[frame[node - 1]];
      this.set[node] = frameSet[frame[node - 1]];
    }
    for (; depth >= 0; depth--) this.end[path[depth]] = nodes;
  }

  /** The name that a comparison knows a function by. */
  canonicalName(name) {
    return this.canonical.get(name) ?? this.names[name];
  }

  /** `file:line` of a node, as many as there are. */
  placesOf(node) {
    const set = this.set[node], single = this.places.file.length;
    if (!set) return [];
    return (set <= single ? [set] : this.sets[set - single - 1]).map(place => {
      const line = this.places.line[place - 1], file = this.files[this.places.file[place - 1]];
      return line ? `${file}:${line}` : file;
    });
  }

  /** The column that another profile's column is compared with. */
  columnLike({ kind, unit }) {
    return this.columns.findIndex(column => column.kind === kind && column.unit === unit);
  }
}
