// The flame graph: a canvas that draws the rows in sight.

const ROW = 19, NARROWEST = 0.5, MIN_HEIGHT = 8 * ROW;

class Graph {
  /** `on`: what to do when a frame is pointed at, selected, or zoomed to. */
  constructor(box, on) {
    Object.assign(this, { box, on, rows: [], zoomed: null, selected: null, pointed: null, up: false, matches: null });
    this.canvas = box.querySelector('canvas');
    this.space = box.firstElementChild;
    this.pen = this.canvas.getContext('2d');
    box.addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.layout()).observe(box);
    this.canvas.addEventListener('mousemove', event => this.point(event));
    this.canvas.addEventListener('mouseleave', () => this.point(null));
    this.canvas.addEventListener('click', event => {
      const frame = this.at(event);
      if (!frame) return;
      this.select(frame);
      this.zoom(frame);
    });
    this.canvas.addEventListener('keydown', event => this.key(event));
    this.canvas.addEventListener('focus', () => { if (this.view) this.select(this.selected ?? this.zoomed); });
  }

  show(view) {
    Object.assign(this, { view, zoomed: view.root, selected: null });
    this.point(null);
    this.layout();
    this.fit(MIN_HEIGHT);
    this.box.scrollTop = this.up ? this.box.scrollHeight : 0;
  }

  /** Takes the height that the rows need, within bounds, and not less than this: what lies below shall not jump at each zoom. */
  fit(least) {
    this.box.style.height = `${Math.max(least, Math.min(this.rows.length * ROW + 4, 0.58 * innerHeight))}px`;
    this.draw();
  }

  zoom(frame) {
    if (this.zoomed === frame) return;
    this.zoomed = frame;
    this.layout();
    this.fit(this.box.clientHeight + 2);
    if (this.up) this.reveal(frame);
    this.on.zoomed(frame);
  }

  select(frame) {
    this.selected = frame;
    this.reveal(frame);
    this.draw();
    this.on.selected(frame);
  }

  /** Finds out what is wide enough to be seen, and where it is. */
  layout() {
    if (!this.view) return;
    const width = this.box.clientWidth, path = this.zoomed.path();
    this.rows = [];
    const put = (frame, x, w, depth) => (this.rows[depth] ??= []).push({ frame, x, w });
    path.forEach((frame, depth) => put(frame, 0, width, depth));
    const pending = [[this.zoomed, 0, width]];
    while (pending.length) {
      const [frame, x, w] = pending.pop(), kids = frame.kids();
      // Of a comparison, the larger sides together can be more than the larger sum.
      const all = Math.max(frame.width, kids.reduce((sum, kid) => sum + kid.width, 0));
      let at = x;
      const wide = [];
      for (let i = 0; i < kids.length; i++) {
        const size = w * kids[i].width / all;
        if (size < NARROWEST) {
          const rest = kids.slice(i).reduce((sum, kid) => sum + kid.width, 0) / all * w;
          if (rest >= NARROWEST) put(null, at, rest, frame.depth + 1);
          break;
        }
        put(kids[i], at, size, frame.depth + 1);
        wide.push([kids[i], at, size]);
        at += size;
      }
      // The left-most first, so that each row is in order.
      pending.push(...wide.reverse());
    }
    const height = this.rows.length * ROW;
    this.space.style.height = `${Math.max(height, 4 * ROW)}px`;
    this.draw();
  }

  /** Top of a row within the whole. */
  top(depth) {
    return this.up ? Math.max(this.rows.length, 4) * ROW - (depth + 1) * ROW : depth * ROW;
  }

  draw() {
    if (!this.view) return;
    const { pen, canvas, box } = this, ratio = devicePixelRatio || 1;
    const width = box.clientWidth, height = box.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = '12px ui-monospace, monospace';
    pen.textBaseline = 'middle';
    this.letter ??= pen.measureText('MMMMMMMMMM').width / 10;
    this.colors = colorsOf(this.box);
    this.rows.forEach((row, depth) => {
      const y = this.top(depth) - box.scrollTop;
      if (y > height || y + ROW < 0) return;
      for (const rect of row) this.drawFrame(rect, y, depth);
    });
    performance.mark('drawn');
  }

  drawFrame({ frame, x, w }, y, depth) {
    const { pen } = this, gap = w > 3 ? 1 : 0;
    pen.globalAlpha = depth < this.zoomed.depth ? 0.45 : 1;
    pen.fillStyle = frame ? this.colors.of(frame, this.isMatch(frame)) : this.colors.rest;
    pen.fillRect(x, y, w - gap, ROW - 1);
    if (!frame) return;
    if (frame === this.pointed) {
      pen.fillStyle = this.colors.pointed;
      pen.fillRect(x, y, w - gap, ROW - 1);
    }
    const letters = Math.floor((w - 7) / this.letter);
    if (letters > 2) {
      const text = frame.text.length > letters ? frame.text.slice(0, letters - 1) + '…' : frame.text;
      pen.fillStyle = this.colors.text;
      pen.fillText(text, x + 4, y + ROW / 2);
    }
    if (frame === this.selected) {
      pen.lineWidth = 2;
      pen.strokeStyle = this.colors.line;
      pen.strokeRect(x + 1, y + 1, Math.max(1, w - gap - 2), ROW - 3);
    }
    pen.globalAlpha = 1;
  }

  /** Whether a search found the frame; null: nothing is searched. */
  isMatch(frame) {
    if (!this.matches) return null;
    return frame.label === null && Boolean(this.matches[frame.teller][frame.names[frame.teller]]);
  }

  rectAt(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left, y = event.clientY - bounds.top + this.box.scrollTop;
    const down = Math.floor(y / ROW), depth = this.up ? Math.max(this.rows.length, 4) - 1 - down : down;
    return (this.rows[depth] ?? []).find(rect => x >= rect.x && x < rect.x + rect.w);
  }

  at(event) {
    return this.rectAt(event)?.frame ?? null;
  }

  point(event) {
    const rect = event && this.rectAt(event), frame = rect?.frame ?? null;
    if (frame !== this.pointed) {
      this.pointed = frame;
      this.draw();
    }
    this.canvas.style.cursor = frame ? 'pointer' : 'default';
    this.on.pointed(frame, event, Boolean(rect));
  }

  reveal(frame) {
    const top = this.top(frame.depth), { box } = this;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !this.view) return;
    const from = this.selected ?? this.zoomed;
    const inSight = this.rows[from.depth]?.filter(rect => rect.frame) ?? [];
    const here = inSight.findIndex(rect => rect.frame === from);
    const deeper = () => (this.rows[from.depth + 1] ?? []).find(rect => rect.frame?.parent === from)?.frame;
    const ways = {
      ArrowUp: () => this.up ? deeper() : from.parent,
      ArrowDown: () => this.up ? from.parent : deeper(),
      ArrowLeft: () => inSight[here - 1]?.frame,
      ArrowRight: () => inSight[here + 1]?.frame,
      Home: () => this.view.root,
    };
    if (ways[event.key]) {
      const to = ways[event.key]();
      if (to) this.select(to);
    } else if (event.key === 'Enter' || event.key === ' ') {
      this.zoom(from);
    } else if (event.key === 'Backspace') {
      if (this.zoomed.parent) { this.zoom(this.zoomed.parent); this.select(this.zoomed); }
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** Colours of the theme in force. Frames of one kind differ a little, each function by its name. */
function colorsOf(element) {
  const style = getComputedStyle(element), color = name => style.getPropertyValue(`--${name}`).trim();
  const dark = color('dark') === '1';
  const kinds = [[24, 75], [48, 65], [145, 38], [212, 42], [178, 40], [0, 0], [265, 35]];
  const made = new Map();
  const hsl = (hue, saturation, light) => `hsl(${hue} ${saturation}% ${light}%)`;
  return {
    text: color('frame-text'), line: color('frame-line'), rest: color('frame-rest'), pointed: color('frame-pointed'),
    of(frame, match) {
      if (match === true) return color('frame-match');
      if (frame.sides.length > 1) return changeColor(frame, dark, match === false);
      const vary = hash(frame.text), [hue, saturation] = kinds[frame.kind];
      const key = `${frame.kind} ${vary} ${match}`;
      if (!made.has(key)) {
        const light = (dark ? 33 : 74) + vary % 8 * (dark ? 0.9 : 1.4);
        made.set(key, match === false ? hsl(hue, saturation / 6, dark ? light - 6 : light + 8) : hsl(hue + vary % 14 - 7, saturation, light));
      }
      return made.get(key);
    },
  };
}

function hash(text) {
  let hash = 7;
  for (let i = 0; i < text.length && i < 64; i++) hash = (hash * 31 + text.charCodeAt(i)) | 0;
  return (hash >>> 4) % 56;
}

/** Red: more than in the base; blue: less; the stronger, the larger a part of the frame. */
function changeColor({ weights: [base, head] }, dark, faded) {
  const change = head - base, part = Math.abs(change) / Math.max(base, head, 1);
  const hue = change > 0 ? 8 : 215, light = dark ? 30 + 16 * part : 90 - 32 * part;
  return `hsl(${hue} ${faded ? 8 : Math.min(85, Math.round(100 * Math.sqrt(part)))}% ${Math.round(light)}%)`;
}
