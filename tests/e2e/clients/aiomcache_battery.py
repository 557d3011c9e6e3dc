#!/usr/bin/env python3
"""aiomcache: every method of an asyncio client, many at a time.

    aiomcache_battery.py HOST:PORT [--label TEXT]
"""

import asyncio

import aiomcache

from battery import Wrong, check, holds, main, new_key, same

CALLS_AT_A_TIME = 200
CHECK_S = 60


class Server:
    """Runs a check's coroutine on a client of its own."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    async def with_client(self, function):
        """As asyncio wants it: the client lives and ends within one loop."""
        client = aiomcache.Client(self.host, self.port, pool_size=8)
        try:
            await asyncio.wait_for(function(client), CHECK_S)
        finally:
            await client.close()


def check_async(name):
    """Registers a coroutine as a check."""

    def register(function):
        check(name)(lambda server: asyncio.run(server.with_client(function)))
        return function

    return register


async def raises(call):
    """Raises Wrong unless the call raises the client's own error."""
    try:
        got = await call
    except aiomcache.ClientException:
        return
    raise Wrong(f"{got!r} instead of an error")


def key_bytes():
    """This client takes bytes."""
    return new_key().encode()


@check_async("every method")
async def _(client):
    key, other = key_bytes(), key_bytes()
    same(await client.get(key), None)
    same(await client.get(key, b"default"), b"default")
    same(await client.set(key, b"1"), True)
    same(await client.add(key, b"2"), False)
    same(await client.replace(other, b"2"), False)
    same(await client.append(key, b"2"), True)
    same(await client.prepend(key, b"3"), True)
    same(await client.incr(key, 5), 317)
    same(await client.decr(key, 7), 310)
    await raises(client.incr(other))
    value, cas = await client.gets(key)
    same(value, b"310")
    same(await client.cas(key, b"4", cas), True)
    same(await client.cas(key, b"5", cas), False)
    same(await client.touch(key, 100), True)
    same(await client.touch(other, 100), False)
    same(await client.multi_get(key, other), (b"4", None))
    same(await client.delete(key), True)
    same(await client.delete(key), False)
    holds((await client.version()).startswith(b"1."), "no version number")
    holds(int((await client.stats())[b"curr_items"]) >= 0, "no curr_items in the stats")
    holds(await client.stats(b"settings"), "no settings in the stats")
    same(await client.set(key, b"6"), True)
    await client.flush_all()
    same(await client.get(key), None)


@check_async("many calls at a time")
async def _(client):
    items = {key_bytes(): b"%d" % i for i in range(CALLS_AT_A_TIME)}
    same(set(await asyncio.gather(*(client.set(key, value) for key, value in items.items()))), {True})
    same(await asyncio.gather(*(client.get(key) for key in items)), list(items.values()))
    same(await client.multi_get(*items), tuple(items.values()))


if __name__ == "__main__":
    main(Server)
