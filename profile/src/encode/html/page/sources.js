// Where profiles come from, and the forms they can be had in.

const MOST_SOURCES = 12;
/** The token that the process asks for. It is kept here alone: in no address, no cookie, no storage. */
let token = null;

/** The page's address as a folder: a server of the application may have it at `/profiler`, without the slash. */
const folder = () => new URL(location.pathname.replace(/\/?$/, '/'), location.href);

/** A request to the process that served the page. */
async function ask(path, options = {}) {
  for (;;) {
    const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
    const answer = await fetch(new URL(path, folder()), { ...options, headers, cache: 'no-store' });
    if (answer.status === 401) { token = await askToken(); continue; }
    if (!answer.ok) throw new Error((await answer.text()).trim().split('\n')[0] || `it answers ${answer.status}`);
    return answer;
  }
}

/** Several requests may be waiting for one answer. */
let asked = null;

function askToken() {
  const dialog = document.getElementById('token'), input = dialog.querySelector('input');
  asked ??= new Promise((resolve, reject) => {
    dialog.querySelector('p').textContent = token === null ? 'This server asks for its token.' : 'That is not the token.';
    dialog.querySelector('form').onsubmit = event => {
      event.preventDefault();
      resolve(input.value.trim());
      input.value = '';
      dialog.close();
    };
    dialog.onclose = () => { asked = null; reject(new Error('a token is needed; reload the page to be asked again')); };
    dialog.showModal();
  });
  return asked;
}

class Sources {
  /** `changed`: what to do when there is one more. */
  constructor(host, changed) {
    Object.assign(this, { host, changed, list: [], formats: [], process: '' });
  }

  add(source, inUse = []) {
    this.list.push(source);
    if (this.list.length > MOST_SOURCES) {
      const oldest = this.list.findIndex(other => other !== source && !inUse.includes(other) && other.bytes);
      if (oldest >= 0) this.list.splice(oldest, 1);
    }
    this.changed();
    return source;
  }

  /** What the process makes of a profile, in one of its formats or as `page`, which is this page's own. */
  async as(source, format) {
    const title = encodeURIComponent(source.profile?.title ?? [this.process, source.name].filter(Boolean).join(': '));
    const path = source.index === undefined ? `page/convert?format=${format}&title=${title}` : `page/file?index=${source.index}&format=${format}`;
    return (await ask(path, source.index === undefined ? { method: 'POST', body: source.bytes } : {})).blob();
  }

  async load(source) {
    source.profile ??= Profile.ofPage(source.document ?? JSON.parse(await (await this.as(source, 'page')).text()));
    return source.profile;
  }

  /** A file that the user chose. */
  async open(file, inUse) {
    const source = { name: file.name, bytes: file };
    try {
      const beginning = await file.slice(0, 200).text();
      if (!/^\s*[<{]/.test(beginning)) throw new Error('this page reads pages, and JSON of Profile Recorder');
      source.profile = readText(await file.text());
      // What a process does not read, it cannot convert.
      source.local = true;
    } catch (error) {
      if (this.host === 'file') throw new Error(`cannot read ${file.name}: ${error.message}; 'profrec view' reads every format`);
      await this.load(source);
    }
    return this.add(source, inUse);
  }

  /** What can be downloaded: name, file name's ending, how to make it. */
  forms(source, side) {
    const own = [
      ['collapsed', '.collapsed', async () => new Blob([collapsed(side)], { type: 'text/plain' })],
      ['page data', '.json', async () => new Blob([JSON.stringify(source.profile.document)], { type: 'application/json' })],
    ];
    if (this.host === 'file' || source.local) return own.filter(([name]) => name !== 'page data' || source.profile.document);
    return this.formats.map(({ name, extension }) => [name, extension, () => this.as(source, name)]);
  }
}

/** A line for each stack, as flame graph tools read them: of one column, as it is shown. */
function collapsed(side) {
  const { names, name, parent } = side.profile;
  const lines = Array.from(side.nodes, (node, i) => {
    const path = [];
    for (let at = node; at; at = parent[at]) path.unshift(names[name[at]].replace(/[\p{Cc}]/gu, ' ').replaceAll(';', ':').trim() || '_');
    return `${path.join(';')} ${side.valueBetween(i, i + 1)}\n`;
  });
  return lines.join('');
}

function save(blob, name) {
  const link = element('a'), address = URL.createObjectURL(blob);
  link.setAttribute('href', address);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
