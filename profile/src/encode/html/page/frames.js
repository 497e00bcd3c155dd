// What is drawn: frames that are made when they are looked at. Of millions of nodes, those that are wider than a pixel are few.

/**
 * One or two profiles, from the root or from the leaves. Sides stand in the order base, head; a single one is the head.
 * keys: what a name is equal to on the other side, by side and name; null: itself.
 */
class View {
  constructor(sides, { reversed = false, groups = null } = {}) {
    Object.assign(this, { sides, reversed });
    this.keys = sides.length > 1 ? commonKeys(sides) : null;
    this.root = new Frame(this, null, sides);
    this.root.label = 'all';
    this.root.weights = sides.map(side => side.weight * side.scale);
    if (groups) this.root.found = groups.map(({ label, side }) => Object.assign(this.start(new Frame(this, this.root, [side])), { label }))
      .filter(frame => frame.width > 0).sort(wider);
    else this.start(this.root);
  }

  /** A frame that all stacks of its sides begin at. */
  start(frame) {
    if (this.reversed) frame.items = frame.sides.map(side => ({ at: side.nodes, row: null }));
    else frame.nodes = frame.sides.map(() => [0]);
    frame.weights = frame.sides.map(side => side.weight * side.scale);
    return frame;
  }

  keyOf(side, name) {
    return this.keys ? this.keys[side][name] : name;
  }
}

const wider = (a, b) => b.width - a.width || (a.text < b.text ? -1 : 1);

/** Numbers for names that are the same on both sides. */
function commonKeys(sides) {
  const keys = new Map();
  return sides.map(({ profile }) => Int32Array.from(profile.names, (_, name) => {
    const canonical = profile.canonicalName(name);
    if (!keys.has(canonical)) keys.set(canonical, keys.size);
    return keys.get(canonical);
  }));
}

class Frame {
  constructor(view, parent, sides) {
    Object.assign(this, { view, parent, sides, depth: parent ? parent.depth + 1 : 0, label: null, found: null });
    this.weights = sides.map(() => 0);
  }

  /** As wide as the larger side: what is gone is seen, too. */
  get width() {
    return this.weights.length > 1 ? Math.max(this.weights[0], this.weights[1]) : this.weights[0];
  }

  /** The side that tells its name: the head, if it has the function. */
  get teller() {
    const head = this.sides.length - 1;
    return this.names[head] === undefined ? 0 : head;
  }

  get text() {
    if (this.label !== null) return this.label;
    return this.sides[this.teller].profile.names[this.names[this.teller]];
  }

  get kind() {
    return this.label !== null ? NOTE : this.sides[this.teller].profile.kinds[this.names[this.teller]];
  }

  get module() {
    return this.label !== null ? '' : this.sides[this.teller].profile.modules[this.names[this.teller]];
  }

  /** Nodes of the tree that this frame stands for, on the side that tells its name. */
  get placed() {
    if (this.label !== null) return [];
    return this.nodes ? this.nodes[this.teller] : this.items[this.teller].at;
  }

  /** Files and lines, each once. */
  places() {
    const { profile } = this.sides[this.label === null ? this.teller : 0], found = new Set();
    for (const node of this.placed) {
      for (const place of profile.placesOf(node)) found.add(place);
      if (found.size > 8) break;
    }
    return [...found];
  }

  /** Exact value on a side. */
  value(side) {
    const of = this.sides[side];
    if (this.nodes) return this.nodes[side].reduce((sum, node) => plus(sum, of.value(node)), 0);
    if (!this.items) return of.total;
    const { at, row } = this.items[side];
    let sum = 0;
    for (let i = 0; i < at.length; i++) sum = plus(sum, of.valueBetween(row ? row[i] : i, (row ? row[i] : i) + 1));
    return sum;
  }

  /** Of what ends here; of a frame of reversed stacks, of what it was called to do. */
  own(side) {
    if (this.items) return this.parent && this.parent.label !== null ? this.value(side) : 0;
    return this.nodes ? this.nodes[side].reduce((sum, node) => plus(sum, this.sides[side].own(node)), 0) : 0;
  }

  kids() {
    this.found ??= (this.items ? this.callers() : this.callees()).filter(frame => frame.width > 0).sort(wider);
    return this.found;
  }

  kid(found, side, name) {
    const key = this.view.keyOf(side, name);
    let frame = found.get(key);
    if (!frame) {
      frame = new Frame(this.view, this, this.sides);
      frame.names = [];
      if (this.items) frame.items = this.sides.map(() => ({ at: [], row: [] }));
      else frame.nodes = this.sides.map(() => []);
      found.set(key, frame);
    }
    frame.names[side] ??= name;
    return frame;
  }

  callees() {
    const found = new Map();
    this.sides.forEach((side, number) => {
      const { end, name } = side.profile;
      for (const node of this.nodes[number]) {
        for (let below = node + 1; below < end[node]; below = end[below]) {
          if (!side.has(below)) continue;
          const frame = this.kid(found, number, name[below]);
          frame.nodes[number].push(below);
          frame.weights[number] += side.weightOf(below) * side.scale;
        }
      }
    });
    return [...found.values()];
  }

  callers() {
    const found = new Map(), starts = this.label !== null;
    this.sides.forEach((side, number) => {
      const { parent, name } = side.profile, { at, row } = this.items[number];
      for (let i = 0; i < at.length; i++) {
        const node = starts ? at[i] : parent[at[i]], from = row ? row[i] : i;
        if (!node) continue;
        const frame = this.kid(found, number, name[node]);
        frame.items[number].at.push(node);
        frame.items[number].row.push(from);
        frame.weights[number] += (side.weights[from + 1] - side.weights[from]) * side.scale;
      }
    });
    return [...found.values()];
  }

  /** From the root down to this frame. */
  path() {
    const path = [];
    for (let frame = this; frame; frame = frame.parent) path.unshift(frame);
    return path;
  }
}
