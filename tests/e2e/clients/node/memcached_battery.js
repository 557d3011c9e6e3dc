#!/usr/bin/env node
'use strict';
// node-memcached (ASCII): every method.
//
//     memcached_battery.js HOST:PORT [--label TEXT]

// The library still makes buffers with `new Buffer`.
process.noDeprecation = true;

const { promisify } = require('node:util');
const Memcached = require('memcached');
const { check, everyByte, eventually, holds, main, newKey, noise, refused, same } = require('./battery');

const REPLY_MS = 30000;
const TTL = 1000;
const AT_A_TIME = 200;

/** The library's methods take callbacks. */
function connect(server) {
  const client = new Memcached(server, { timeout: REPLY_MS, retries: 0, maxValue: 2 << 20, poolSize: AT_A_TIME });
  const wrapped = { end: () => client.end() };
  const methods = ['touch', 'get', 'gets', 'getMulti', 'set', 'replace', 'add', 'cas', 'append', 'prepend', 'incr',
    'decr', 'del', 'version', 'flush', 'stats', 'settings', 'slabs', 'items', 'cachedump'];
  for (const method of methods) {
    wrapped[method] = promisify(client[method]).bind(client);
  }
  return wrapped;
}

check('set, get, delete', async (client) => {
  const key = newKey();
  same(await client.get(key), undefined);
  for (const value of ['text', '', '\u9375', everyByte, 42, 2.5, true, { a: [1, null] }, Buffer.from('\r\nEND\r\n')]) {
    same(await client.set(key, value, TTL), true);
    same(await client.get(key), value);
  }
  same(await client.del(key), true);
  same(await client.del(key), false);
  same(await client.get(key), undefined);
});

check('values of every size class', async (client) => {
  for (const size of [1, 2, 63, 64, 1023, 1024, 1025, 1400, 1472, 9000, 65535, 65536, 500000]) {
    // A byte of 128 and above takes two on the wire.
    const [key, value] = [newKey('size'), noise(size, size)];
    same(await client.set(key, value, TTL), true);
    same(await client.get(key), value, `${size} bytes:`);
  }
});

check('what is too large is refused', async (client) => {
  // The library takes every SERVER_ERROR for trouble with the connection.
  same(await client.set(newKey(), 'x'.repeat(1100000), TTL), false);
});

check('keys of 250 bytes', async (client) => {
  const key = newKey().padEnd(250, 'k');
  same(await client.set(key, 'x', TTL), true);
  same(await client.get(key), 'x');
});

check('add, replace, append, prepend', async (client) => {
  const key = newKey();
  await refused(client.replace(key, '0', TTL), 'not stored');
  await refused(client.append(key, '0'), 'not stored');
  await refused(client.prepend(key, '0'), 'not stored');
  same(await client.add(key, '1', TTL), true);
  await refused(client.add(key, '2', TTL), 'not stored');
  same(await client.get(key), '1');
  same(await client.replace(key, '3', TTL), true);
  same(await client.append(key, '4\r\n5'), true);
  same(await client.prepend(key, '2'), true);
  same(await client.get(key), '234\r\n5');
});

check('cas', async (client) => {
  const key = newKey();
  same(await client.gets(key), undefined);
  same(await client.set(key, everyByte, TTL), true);
  const seen = await client.gets(key);
  same(seen[key], everyByte);
  same(await client.cas(key, '2', seen.cas, TTL), true);
  same(await client.cas(key, '3', seen.cas, TTL), false);
  same(await client.get(key), '2');
  same(await client.del(key), true);
  same(await client.cas(key, '4', seen.cas, TTL), false);
});

check('multi-get', async (client) => {
  const items = {};
  for (let i = 0; i < 300; i++) items[newKey('multi')] = noise(i, (i * 7) % 1000);
  for (const [key, value] of Object.entries(items)) same(await client.set(key, value, TTL), true);
  same(await client.getMulti([...Object.keys(items), newKey('absent')]), items);
  same(await client.getMulti([newKey('absent'), newKey('absent')]), {});
});

check('increment, decrement', async (client) => {
  const key = newKey();
  same(await client.incr(key, 1), false);
  same(await client.decr(key, 1), false);
  same(await client.set(key, 10, TTL), true);
  same(await client.incr(key, 5), 15);
  same(await client.decr(key, 7), 8);
  same(await client.get(key), 8);
  same(await client.decr(key, 100), 0);
  same(await client.set(key, 'text', TTL), true);
  await refused(client.incr(key, 1), 'non-numeric');
  same(await client.get(key), 'text');
});

check('touch and expiry', async (client) => {
  const [kept, gone, touched] = [newKey(), newKey(), newKey()];
  same(await client.touch(kept, TTL), false);
  same(await client.set(kept, everyByte, TTL), true);
  same(await client.set(gone, '1', 1), true);
  same(await client.set(touched, '1', TTL), true);
  same(await client.touch(kept, 5000), true);
  same(await client.touch(touched, 1), true);
  await eventually('items are still there', async () => Object.keys(await client.getMulti([gone, touched])).length === 0);
  same(await client.get(kept), everyByte);
});

check('many requests at a time', async (client) => {
  const items = Array.from({ length: AT_A_TIME }, (_, i) => [newKey('many'), noise(i, (i * 37) % 5000)]);
  const sets = await Promise.all(items.map(([key, value]) => client.set(key, value, TTL)));
  same(new Set(sets), new Set([true]));
  const values = await Promise.all(items.map(([key]) => client.get(key)));
  same(values, items.map(([, value]) => value));
  const counter = newKey();
  await client.set(counter, 0, TTL);
  const seen = await Promise.all(items.map(() => client.incr(counter, 1)));
  same(seen.sort((a, b) => a - b), items.map((_, i) => i + 1));
});

check('version, stats, flush', async (client) => {
  const key = newKey();
  same(await client.set(key, 'x', TTL), true);
  holds(/^\d+\.\d+\.\d+$/.test((await client.version())[0].version), 'no version number');
  holds((await client.stats())[0].curr_items >= 1, 'no curr_items');
  holds((await client.settings())[0].maxbytes > 0, 'no maxbytes in the settings');
  holds(Object.values((await client.slabs())[0]).some((slab) => slab.chunk_size > 0), 'no chunk_size of any slab');
  const [items] = await client.items();
  const [slab, { number }] = Object.entries(items).find(([, counts]) => counts.number > 0);
  const dumped = [await client.cachedump(items.server, Number(slab), number)].flat();
  holds(dumped.every((item) => item.key && item.b >= 0), 'cachedump has an item with no key');
  same((await client.flush())[0], true);
  same(await client.get(key), undefined);
});

main(connect, (client) => client.end());
