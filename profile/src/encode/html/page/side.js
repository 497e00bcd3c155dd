// One column of a profile, of all samples or of some: sums below every node of the tree.

class Side {
  /** `groups`: those of the profile's groups whose samples count; null: all. `ranked`: sums will be asked of very many nodes. */
  constructor(profile, column, groups, ranked) {
    // What its weights are multiplied by, where shares are compared.
    Object.assign(this, { profile, column: profile.columns[column], scale: 1 });
    const { low, high } = this.column, { rows } = profile, chosen = groups ?? profile.groups;
    let count = 0;
    if (chosen.length === 1) {
      count = chosen[0].to - chosen[0].from;
      this.nodes = rows.subarray(chosen[0].from, chosen[0].to);
      this.sum(i => low[chosen[0].from + i], high && (i => high[chosen[0].from + i]));
    } else {
      const nodes = profile.parent.length, lows = new Float64Array(nodes), highs = high && new Float64Array(nodes);
      const seen = new Uint8Array(nodes);
      for (const { from, to } of chosen) {
        for (let i = from; i < to; i++) {
          const node = rows[i];
          count += !seen[node];
          seen[node] = 1;
          lows[node] += low[i];
          if (high) highs[node] += high[i];
        }
      }
      this.nodes = new Int32Array(count);
      for (let node = 0, at = 0; at < count; node++) if (seen[node]) this.nodes[at++] = node;
      this.sum(i => lows[this.nodes[i]], high && (i => highs[this.nodes[i]]));
    }
    if (ranked) this.rank();
    this.total = this.valueBetween(0, this.nodes.length);
    this.weight = this.weights[this.nodes.length];
  }

  /** Sums from the first row on. Weights are what has a width: no less than nothing. */
  sum(low, high) {
    const { length } = this.nodes;
    this.lows = new Float64Array(length + 1);
    this.highs = high ? new Float64Array(length + 1) : null;
    let negative = false;
    for (let i = 0; i < length; i++) {
      const l = low(i), h = high ? high(i) : 0;
      this.lows[i + 1] = this.lows[i] + l;
      if (high) this.highs[i + 1] = this.highs[i] + h;
      negative ||= (high ? h : l) < 0;
    }
    this.weights = this.lows;
    this.negative = negative;
    if (negative || high) {
      this.weights = new Float64Array(length + 1);
      for (let i = 0; i < length; i++) this.weights[i + 1] = this.weights[i] + Math.max(0, low(i) + (high ? high(i) * WORD : 0));
    }
  }

  rank() {
    const nodes = this.profile.parent.length;
    this.ranks = new Int32Array(nodes + 1);
    for (let node = 0, at = 0; node <= nodes; node++) {
      while (at < this.nodes.length && this.nodes[at] < node) at++;
      this.ranks[node] = at;
    }
  }

  /** Number of rows before this node's. */
  before(node) {
    if (this.ranks) return this.ranks[node];
    let from = 0, to = this.nodes.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.nodes[middle] < node) from = middle + 1; else to = middle;
    }
    return from;
  }

  valueBetween(from, to) {
    return whole(this.lows[to] - this.lows[from], this.highs ? this.highs[to] - this.highs[from] : 0);
  }

  /** Of the node and all below it. */
  value(node) {
    return this.valueBetween(this.before(node), this.before(this.profile.end[node]));
  }

  weightOf(node) {
    return this.weights[this.before(this.profile.end[node])] - this.weights[this.before(node)];
  }

  has(node) {
    return this.before(this.profile.end[node]) > this.before(node);
  }

  /** Of what ends at the node. */
  own(node) {
    const at = this.before(node);
    return this.nodes[at] === node ? this.valueBetween(at, at + 1) : 0;
  }

  /** The name that a row's value is said to be of: who allocated, not what was called to allocate. */
  ownerOf(node) {
    const { name, kinds, parent } = this.profile;
    return this.column.memory && kinds[name[node]] === ALLOCATION && parent[node] ? name[parent[node]] : name[node];
  }

  /** Own and total values by name. What a function calls itself counts once. */
  functions() {
    const { names, name, end } = this.profile, own = new Array(names.length).fill(0), total = new Array(names.length).fill(0);
    for (let i = 0; i < this.nodes.length; i++) {
      const owner = this.ownerOf(this.nodes[i]);
      own[owner] = plus(own[owner], this.valueBetween(i, i + 1));
    }
    const until = new Int32Array(names.length);
    for (let node = 1; node < end.length; node++) {
      if (until[name[node]] > node || !this.has(node)) continue;
      until[name[node]] = end[node];
      total[name[node]] = plus(total[name[node]], this.value(node));
    }
    return { own, total };
  }

  /** The sum of all stacks that a function of these is in. */
  within(matches) {
    const { name, end } = this.profile;
    let sum = 0;
    for (let node = 1; node < end.length;) {
      if (!matches[name[node]]) { node++; continue; }
      sum = plus(sum, this.value(node));
      node = end[node];
    }
    return sum;
  }
}
