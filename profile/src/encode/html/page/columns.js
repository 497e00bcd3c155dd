// Columns of LEB128 numbers in base64.

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Numbers below 2^31. */
function unsignedColumn(text) {
  const bytes = bytesOf(text), numbers = new Int32Array(bytes.length);
  let count = 0;
  for (let i = 0; i < bytes.length;) {
    let byte = bytes[i++], number = byte & 127;
    for (let shift = 7; byte > 127; shift += 7) { byte = bytes[i++]; number |= (byte & 127) << shift; }
    numbers[count++] = number;
  }
  return numbers.slice(0, count);
}

/**
 * Signed numbers of up to 64 bits: {low, high}. Where sums may be beyond 2^53, a number is low + high * 2^32, and sums of
 * either half are exact; elsewhere high is null and low the number.
 */
function signedColumn(text, count, wide) {
  const bytes = bytesOf(text), low = new Float64Array(count), high = wide ? new Float64Array(count) : null;
  for (let i = 0, at = 0; at < count; at++) {
    let byte = bytes[i++], number = byte & 127, scale = 128;
    const first = i;
    while (byte > 127) { byte = bytes[i++]; number += (byte & 127) * scale; scale *= 128; }
    if (i - first < 7) number = number % 2 ? -(number + 1) / 2 : number / 2;
    else number = longNumber(bytes, first - 1, i);
    if (wide) [low[at], high[at]] = halves(number);
    else low[at] = number;
  }
  return { low, high };
}

function longNumber(bytes, from, to) {
  let number = 0n;
  for (let i = to - 1; i >= from; i--) number = number << 7n | BigInt(bytes[i] & 127);
  return normal(number & 1n ? -((number + 1n) >> 1n) : number >> 1n);
}

function halves(value) {
  if (typeof value === 'bigint') return [Number(value & 0xffffffffn), Number(value >> 32n)];
  const high = Math.floor(value / WORD);
  return [value - high * WORD, high];
}

/** The same of numbers that are there already. */
function columnOf(values) {
  let size = 0, wide = false;
  for (const value of values) { size += Math.abs(Number(value)); wide ||= typeof value === 'bigint'; }
  wide ||= size > Number.MAX_SAFE_INTEGER;
  const low = new Float64Array(values.length), high = wide ? new Float64Array(values.length) : null;
  values.forEach((value, i) => {
    if (wide) [low[i], high[i]] = halves(value);
    else low[i] = value;
  });
  return { low, high };
}
