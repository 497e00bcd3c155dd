// Values. A value is a Number where that is exact, else a BigInt.

const WORD = 2 ** 32;

/** low + high * 2^32, both sums of such halves. */
function whole(low, high) {
  const value = high * WORD + low;
  return Number.isSafeInteger(value) ? value : BigInt(high) * BigInt(WORD) + BigInt(low);
}

function normal(big) {
  const value = Number(big);
  return Number.isSafeInteger(value) ? value : big;
}

function plus(a, b) {
  if (typeof a === 'number' && typeof b === 'number' && Number.isSafeInteger(a + b)) return a + b;
  return normal(BigInt(a) + BigInt(b));
}

function minus(a, b) {
  if (typeof a === 'number' && typeof b === 'number' && Number.isSafeInteger(a - b)) return a - b;
  return normal(BigInt(a) - BigInt(b));
}

/** Every digit: `1,234,567`. */
function digits(value) {
  return value.toLocaleString('en');
}

const BYTES = [[1024, 'B'], [1024, 'KiB'], [1024, 'MiB'], [1024, 'GiB'], [0, 'TiB']];
const TIMES = [[1000, 'ns'], [1000, 'µs'], [1000, 'ms'], [0, 's']];

function scaled(value, units) {
  let unit = 0, size = Math.abs(Number(value));
  while (unit + 1 < units.length && size >= units[unit][0]) { size /= units[unit][0]; unit++; }
  const places = unit && size < 100 ? (size < 10 ? 2 : 1) : 0;
  return (value < 0 ? '-' : '') + size.toFixed(places) + ' ' + units[unit][1];
}

/** As a reader takes it in. */
function shown(value, unit) {
  if (unit === 'bytes') return scaled(value, BYTES);
  if (unit === 'nanoseconds') return scaled(value, TIMES);
  return digits(value) + (unit === 'count' ? '' : ' ' + unit);
}

/** And with every digit, where that says more. */
function shownExactly(value, unit) {
  const short = shown(value, unit);
  return unit === 'bytes' || unit === 'nanoseconds' ? `${short} (${digits(value)} ${unit})` : short;
}

function signed(text, value) {
  return value > 0 ? '+' + text : text;
}

function share(part, all) {
  return Number(all) ? (100 * Number(part) / Number(all)).toFixed(1) + ' %' : '';
}
