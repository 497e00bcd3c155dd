// Reads a WriteRawRequest as Parca's own client knows it: parca.mjs READERS <JSON. What the schema does not have is an error.
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';

const [, , readers] = process.argv;
// The package's files name each other as a bundler finds them, without an extension.
registerHooks({
  resolve(name, context, next) {
    try { return next(name, context); } catch { return next(`${name}.js`, context); }
  },
});
const { WriteRawRequest } = await import(`${readers}/node_modules/@parca/client/dist/parca/profilestore/v1alpha1/profilestore.js`);

const request = WriteRawRequest.fromJson(JSON.parse(readFileSync(0, 'utf8')), { ignoreUnknownFields: false });
console.log(JSON.stringify({
  normalized: request.normalized,
  series: request.series.map(({ labels, samples }) => ({
    labels: Object.fromEntries(labels.labels.map(({ name, value }) => [name, value])),
    profiles: samples.map(({ rawProfile }) => Buffer.from(rawProfile).toString('base64')),
  })),
}));
