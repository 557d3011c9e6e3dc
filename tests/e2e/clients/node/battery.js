'use strict';
// What the batteries in JavaScript share: checks with a name, run one after the other.
//
// A battery registers checks with `check(NAME, async client => ...)` and ends in
// `main(connect, close)`. It is run as
//
//     BATTERY.js HOST:PORT [--label TEXT]
//
// and prints `ok NAME` or `FAILED NAME: why` per check, and exits 1 if any failed.

const assert = require('node:assert');

const EVENTUALLY_MS = 20000;
const checks = [];
let number = 0;

const check = (name, body) => checks.push([name, body]);

/** A key that no other check and no other run uses. */
const newKey = (what = 'key') => `node-${what}-${process.pid}-${number++}`;

const shown = (value) => require('node:util').inspect(value, { breakLength: Infinity }).slice(0, 200);

/** Fails unless both, whatever they are made of, are equal. */
function same(got, wanted, what = '') {
  let equal = true;
  try {
    assert.deepStrictEqual(got, wanted);
  } catch {
    equal = false;
  }
  holds(equal, `${what} ${shown(got)} instead of ${shown(wanted)}`.trim());
}

function holds(condition, what) {
  if (!condition) throw new Error(what);
}

/** Fails unless the promise is rejected, with a message that has this in it. */
async function refused(promise, message) {
  const got = await promise.then((value) => shown(value), (error) => error);
  holds(got instanceof Error && got.message.includes(message), `${got} instead of ${message}`);
}

async function eventually(what, condition) {
  for (const began = Date.now(); !(await condition()); await new Promise((done) => setTimeout(done, 50))) {
    holds(Date.now() - began < EVENTUALLY_MS, `after ${EVENTUALLY_MS / 1000} s: ${what}`);
  }
}

const everyByte = Buffer.from(Array.from({ length: 256 }, (_, i) => i));

/** So many bytes, the same at each run. */
function noise(seed, size) {
  const bytes = Buffer.alloc(size);
  for (let i = 0, state = seed + 1; i < size; i++) {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    bytes[i] = state >>> 16;
  }
  return bytes;
}

async function main(connect, close) {
  const [server, option = '--label', label = ''] = process.argv.slice(2);
  if (!server || option !== '--label') {
    console.error('usage: BATTERY.js HOST:PORT [--label TEXT]');
    process.exit(2);
  }
  let failures = 0;
  for (const [name, body] of checks) {
    const client = connect(server);
    try {
      await body(client);
      console.log(`ok      ${label}${name}`);
    } catch (error) {
      failures++;
      console.log(`FAILED  ${label}${name}: ${error.message}`);
    }
    close(client);
  }
  // Some clients leave a timer behind that would hold the process up.
  process.exit(failures ? 1 : 0);
}

module.exports = { check, everyByte, eventually, holds, main, newKey, noise, refused, same };
