#!/usr/bin/env python3
"""python-binary-memcached: every method of a client in pure Python that speaks only binary.

    bmemcached_battery.py HOST:PORT [--label TEXT]

With MEMCACHE_USERNAME and MEMCACHE_PASSWORD, which memjs and Dalli know by themselves, it authenticates by SASL.
"""

import os

import bmemcached

from battery import check, eventually, holds, main, new_key, same


def connect(host, port):
    """One server, no replicas."""
    login = {who: os.environ.get(f"MEMCACHE_{who.upper()}") for who in ("username", "password")}
    return bmemcached.Client([f"{host}:{port}"], socket_timeout=30, **login)


@check("set, get, delete")
def _(client):
    key = new_key()
    same(client.get(key), None)
    same(client.get(key, "default"), "default")
    for value in (b"bytes", "text", 42, 10**12, True, {"a": [1, None]}, "", "x" * 1_000_000):
        same(client.set(key, value, compress_level=0), True)
        same(client.get(key), value)
    same(client.set(key, "long " * 100_000, compress_level=5), True)
    same(client.get(key), "long " * 100_000, "compressed")
    same(client.delete(key), True)
    same(client.get(key), None)


@check("keys of 250 bytes")
def _(client):
    key = new_key().ljust(250, "k")
    same(client.set(key, "x"), True)
    same(client.get(key), "x")


@check("a value beyond the limit is refused, and the connection goes on")
def _(client):
    key = new_key()
    same(client.set(key, "old"), True)
    try:
        stored = client.set(key, b"x" * ((1 << 20) + 1), compress_level=0)
    except bmemcached.exceptions.MemcachedException:
        stored = False
    same(stored, False)
    same(client.get(key), None)
    same(client.set(key, "new"), True)


@check("add and replace")
def _(client):
    key = new_key()
    same(client.replace(key, "0"), False)
    same(client.add(key, "1"), True)
    same(client.add(key, "2"), False)
    same(client.replace(key, "3"), True)
    same(client.get(key), "3")


@check("CAS ids, of every method that takes or gives one")
def _(client):
    key = new_key()
    same(client.gets(key), (None, None))
    stored, first = client.set(key, "1", get_cas=True)
    same(stored, True)
    same(client.gets(key), ("1", first))
    same(client.get(key, get_cas=True), ("1", first))
    stored, second = client.cas(key, "2", first, get_cas=True)
    same(stored, True)
    same(client.cas(key, "3", first), False, "an old id")
    same(client.gets(key), ("2", second))
    stored, third = client.replace(key, "4", get_cas=True)
    same((stored, third != second), (True, True))
    same(client.delete(key, cas=second), False, "delete with an old id")
    same(client.delete(key, cas=third), True)
    stored, fourth = client.add(key, "5", get_cas=True)
    same(client.gets(key), ("5", fourth))
    same(stored, True)


@check("incr and decr, with initial values")
def _(client):
    key, other = new_key(), new_key()
    same(client.incr(key, 5, default=7), 7)
    same(client.incr(key, 5), 12)
    same(client.decr(key, 2), 10)
    same(client.decr(key, 100), 0)
    same(client.decr(other, 1, default=50), 50)
    same(client.set(other, "%d" % (2**64 - 1)), True)
    same(client.incr(other, 2), 1, "beyond 64 bits")


@check("expiry")
def _(client):
    key = new_key()
    same(client.set(key, "x", time=1), True)
    eventually(lambda: client.get(key) is None, "a key does not expire")


@check("set_multi, set_multi_cas, get_multi, delete_multi")
def _(client):
    items = {new_key(): f"value {i}" for i in range(100)}
    same(client.set_multi(items), [])
    same(client.get_multi([*items, new_key()]), items)
    got = client.get_multi(items, get_cas=True)
    same({key: value for key, (value, _) in got.items()}, items)
    same(client.set_multi_cas(items).keys(), items.keys())
    same(client.delete_multi(items), True)
    same(client.get_multi(items), {})


@check("stats, flush_all, disconnect_all")
def _(client):
    key = new_key()
    same(client.set(key, "x"), True)
    (stats,) = client.stats().values()
    holds(int(stats["curr_items"]) >= 1, "no item in the stats")
    for kind, name in (("settings", "maxbytes"), ("slabs", "active_slabs"), ("items", None)):
        (stats,) = client.stats(kind).values()
        holds(stats and (name is None or name in stats), f"nothing in `stats {kind}`")
    same(client.flush_all(), True)
    same(client.get(key), None)
    client.disconnect_all()
    same(client.set(key, "y"), True)
    same(client.get(key), "y", "a new connection")


if __name__ == "__main__":
    main(connect)
