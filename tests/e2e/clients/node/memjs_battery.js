#!/usr/bin/env node
'use strict';
// memjs (binary protocol): every method but prepend, which sends append.
//
//     memjs_battery.js HOST:PORT [--label TEXT]

const memjs = require('memjs');
const { check, everyByte, eventually, holds, main, newKey, noise, refused, same } = require('./battery');

const REPLY_S = 30;
const AT_A_TIME = 200;
const missing = { value: null, flags: null };

async function stored(client, key, wanted) {
  const { value } = await client.get(key);
  holds(value !== null, 'the value is not there');
  same(Buffer.compare(value, Buffer.from(wanted)), 0, `${value.length} bytes for ${wanted.length}:`);
}

check('set, get, delete', async (client) => {
  const key = newKey();
  same(await client.get(key), missing);
  for (const value of ['text', '', '\u9375', everyByte, Buffer.from('\r\nEND\r\n'), Buffer.alloc(0)]) {
    same(await client.set(key, value, { expires: 1000 }), true);
    await stored(client, key, value);
  }
  same(await client.delete(key), true);
  same(await client.delete(key), false);
  same(await client.get(key), missing);
});

check('values of every size class', async (client) => {
  for (const size of [1, 2, 63, 64, 1023, 1024, 1025, 1400, 1472, 9000, 65535, 65536, 500000, 1000000]) {
    const [key, value] = [newKey('size'), noise(size, size)];
    same(await client.set(key, value, {}), true);
    await stored(client, key, value);
  }
});

check('what is too large is refused', async (client) => {
  const key = newKey();
  await refused(client.set(key, Buffer.alloc(1100000), {}), 'Value too large');
  same(await client.set(key, 'x', {}), true);
  await stored(client, key, 'x');
});

check('keys of 250 bytes, and with every kind of character', async (client) => {
  for (const key of [newKey().padEnd(250, 'k'), newKey('a b\r\nc\0\u9375')]) {
    same(await client.set(key, key, {}), true);
    await stored(client, key, key);
    same(await client.delete(key), true);
  }
});

check('add, replace, append', async (client) => {
  const key = newKey();
  same(await client.replace(key, '0', {}), false);
  await refused(client.append(key, '0'), 'Item not stored');
  same(await client.add(key, '1', { expires: 1000 }), true);
  same(await client.add(key, '2', {}), false);
  await stored(client, key, '1');
  same(await client.replace(key, '3', {}), true);
  same(await client.append(key, everyByte), true);
  await stored(client, key, Buffer.concat([Buffer.from('3'), everyByte]));
});

check('increment, decrement, with an initial value', async (client) => {
  const [key, other] = [newKey(), newKey()];
  same(await client.increment(key, 5, { initial: 10 }), { success: true, value: 10 });
  await stored(client, key, '10');
  same(await client.increment(key, 5, { initial: 10 }), { success: true, value: 15 });
  same(await client.decrement(key, 7, {}), { success: true, value: 8 });
  same(await client.decrement(key, 100, {}), { success: true, value: 0 });
  same(await client.decrement(other, 3, { initial: 7, expires: 1 }), { success: true, value: 7 });
  await eventually('the counter is still there', async () => (await client.get(other)).value === null);
  same(await client.increment(key, 4000000000, {}), { success: true, value: 4000000000 });
  await client.set(key, 'text', {});
  await refused(client.increment(key, 1, {}), 'non-numeric');
  await stored(client, key, 'text');
});

check('touch and expiry', async (client) => {
  const [kept, gone, touched] = [newKey(), newKey(), newKey()];
  same(await client.touch(kept, 1000), false);
  same(await client.set(kept, everyByte, { expires: 1000 }), true);
  same(await client.set(gone, '1', { expires: 1 }), true);
  same(await client.set(touched, '1', { expires: 1000 }), true);
  same(await client.touch(kept, 5000), true);
  same(await client.touch(touched, 1), true);
  for (const key of [gone, touched]) {
    await eventually('an item is still there', async () => (await client.get(key)).value === null);
  }
  await stored(client, kept, everyByte);
});

check('many requests at a time', async (client) => {
  const items = Array.from({ length: AT_A_TIME }, (_, i) => [newKey('many'), noise(i, (i * 37) % 5000)]);
  const sets = await Promise.all(items.map(([key, value]) => client.set(key, value, {})));
  same(new Set(sets), new Set([true]));
  await Promise.all(items.map(([key, value]) => stored(client, key, value)));
  const counter = newKey();
  const seen = await Promise.all(items.map(() => client.increment(counter, 1, { initial: 1 })));
  same(seen.map(({ value }) => value).sort((a, b) => a - b), items.map((_, i) => i + 1));
});

check('callbacks in place of promises', async (client) => {
  const key = newKey();
  const call = (method, ...args) =>
    new Promise((done) => client[method](...args, (error, ...results) => done([error, ...results])));
  same(await call('set', key, 'x', {}), [null, true]);
  const [error, value] = await call('get', key);
  same([error, value.toString()], [null, 'x']);
  same(await call('delete', key), [null, true]);
});

check('stats', async (client) => {
  const asked = (method, ...args) =>
    new Promise((done, failed) =>
      client[method](...args, (error, _server, stats) => (error ? failed(error) : done(stats))));
  holds(Number((await asked('stats')).curr_items) >= 0, 'no curr_items');
  holds(Number((await asked('statsWithKey', 'settings')).maxbytes) > 0, 'no maxbytes in the settings');
  // The answer is but one empty message.
  await asked('resetStats');
});

check('flush', async (client) => {
  const key = newKey();
  await client.set(key, 'x', {});
  same(Object.values(await client.flush()), [true]);
  same(await client.get(key), missing);
});

main(
  (server) =>
    memjs.Client.create(server, { timeout: REPLY_S, conntimeout: REPLY_S, retries: 0, logger: { log() {} } }),
  (client) => client.close(),
);
