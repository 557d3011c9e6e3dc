#!/usr/bin/env python3
"""pymemcache: every method, with replies and without, and raw commands for the verbs it lacks.

    pymemcache_battery.py HOST:PORT [--label TEXT]
"""

from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import (
    MemcacheClientError,
    MemcacheIllegalInputError,
    MemcacheServerError,
    MemcacheUnknownCommandError,
)
from pymemcache.serde import CompressedSerde, PickleSerde

from battery import Wrong, check, eventually, holds, main, new_key, raises, same

TIMEOUTS = {"connect_timeout": 10, "timeout": 30}
U64_MAX = 2**64 - 1
STORED_MAX_BYTES = 1_000_000
BEYOND_LIMIT_BYTES = (1 << 20) + 1


def connect(host, port):
    """Every method waits for its reply, unless told otherwise."""
    return Client((host, port), default_noreply=False, **TIMEOUTS)


def raw(client, command, end=b"\r\n"):
    """One command line (with its data block) as bytes; the reply without its end."""
    return client.raw_command(command, end)


@check("set and get")
def _(client):
    key = new_key()
    same(client.get(key), None)
    same(client.get(key, "default"), "default")
    same(client.set(key, b"value"), True)
    same(client.get(key), b"value")
    same(client.set(key, b"", flags=7), True)
    same(client.get(key), b"")
    client[key] = b"item"
    same(client[key], b"item")
    del client[key]
    raises(KeyError, client.__getitem__, key)


@check("values of every byte, and of almost 1 MB")
def _(client):
    key = new_key()
    for value in (bytes(range(256)) + b"\r\nEND\r\n", b"x" * STORED_MAX_BYTES):
        same(client.set(key, value), True)
        same(client.get(key), value)


@check("a value beyond the limit is refused, and the old one is gone")
def _(client):
    key = new_key()
    same(client.set(key, b"old"), True)
    raises(MemcacheServerError, client.set, key, b"x" * BEYOND_LIMIT_BYTES)
    same(client.get(key), None)


@check("keys of 250 bytes, and Unicode keys")
def _(client):
    key = new_key().ljust(250, "k")
    same(client.set(key, b"long"), True)
    same(client.get(key), b"long")
    raises(MemcacheIllegalInputError, client.get, key + "k")
    unicode_client = Client(client.server, default_noreply=False, allow_unicode_keys=True, **TIMEOUTS)
    key = new_key("schlüssel-鍵")
    same(unicode_client.set(key, b"unicode"), True)
    same(unicode_client.get_many([key]), {key: b"unicode"})


@check("set_many, get_many, gets_many, delete_many")
def _(client):
    items = {new_key(): b"%d" % i for i in range(100)}
    missing = new_key()
    same(client.set_many(items), [])
    same(client.get_many([*items, missing]), items)
    got = client.gets_many([*items, missing])
    same({key: value for key, (value, _) in got.items()}, items)
    same(len({cas for _, cas in got.values()}), len(items), "distinct CAS ids")
    same(client.delete_many(items), True)
    same(client.get_many(items), {})


@check("add and replace")
def _(client):
    key = new_key()
    same(client.replace(key, b"0"), False, "replace of nothing")
    same(client.add(key, b"1"), True)
    same(client.add(key, b"2"), False, "add again")
    same(client.get(key), b"1")
    same(client.replace(key, b"3"), True)
    same(client.get(key), b"3")


@check("append and prepend")
def _(client):
    key = new_key()
    same(client.append(key, b"x"), False, "append to nothing")
    same(client.prepend(key, b"x"), False, "prepend to nothing")
    same(client.set(key, b"middle"), True)
    same(client.append(key, b" end"), True)
    same(client.prepend(key, b"start "), True)
    same(client.get(key), b"start middle end")
    same(client.set(key, b"x" * STORED_MAX_BYTES), True)
    same(client.append(key, b"y" * STORED_MAX_BYTES), False, "beyond the limit")
    same(client.get(key), b"x" * STORED_MAX_BYTES, "after an append beyond the limit")


@check("gets and cas")
def _(client):
    key = new_key()
    same(client.gets(key), (None, None))
    same(client.cas(key, b"x", b"1"), None, "cas of nothing")
    same(client.set(key, b"1"), True)
    value, cas = client.gets(key)
    same(value, b"1")
    same(client.cas(key, b"2", cas), True)
    same(client.cas(key, b"3", cas), False, "cas with an old id")
    same(client.get(key), b"2")
    same(client.append(key, b"!"), True)
    holds(client.gets(key)[1] != cas, "append leaves the CAS id as it was")


@check("delete")
def _(client):
    key = new_key()
    same(client.delete(key), False)
    same(client.set(key, b"x"), True)
    same(client.delete(key), True)
    same(client.get(key), None)


@check("incr and decr")
def _(client):
    key = new_key()
    same(client.incr(key, 1), None, "incr of nothing")
    same(client.decr(key, 1), None, "decr of nothing")
    same(client.set(key, b"10"), True)
    same(client.incr(key, 5), 15)
    same(client.decr(key, 6), 9)
    same(client.get(key).rstrip(b" "), b"9")
    same(client.decr(key, 100), 0, "below zero")
    same(client.set(key, b"%d" % U64_MAX), True)
    same(client.incr(key, 2), 1, "beyond 64 bits")
    same(client.set(key, b"no number"), True)
    raises(MemcacheClientError, client.incr, key, 1)
    raises(MemcacheClientError, client.decr, key, 1)
    same(client.get(key), b"no number")


@check("touch, and expiry")
def _(client):
    key, other, gone = new_key(), new_key(), new_key()
    same(client.touch(key, 10), False, "touch of nothing")
    same(client.set(key, b"x", expire=3600), True)
    same(client.set(other, b"x", expire=1), True)
    same(client.touch(other, 3600), True)
    same(client.touch(key, 1), True)
    same(client.set(gone, b"x", expire=-1), True)
    same(client.get(gone), None, "an exptime in the past")
    eventually(lambda: client.get(key) is None, "a touched key does not expire")
    same(client.get(other), b"x", "a key touched to last longer")


@check("gat and gats")
def _(client):
    key, other = new_key(), new_key()
    same(raw(client, f"gat 100 {key}"), b"END")
    same(client.set(key, b"abc", flags=5), True)
    same(raw(client, f"gat 100 {key} {other}", b"END\r\n"), f"VALUE {key} 5 3\r\nabc\r\n".encode())
    _, cas = client.gets(key)
    wanted = f"VALUE {key} 5 3 {cas.decode()}\r\nabc\r\n".encode()
    same(raw(client, f"gats 1 {key}", b"END\r\n"), wanted)
    eventually(lambda: client.get(key) is None, "gats does not set the exptime")


@check("flush_all, at once and after a delay")
def _(client):
    key = new_key()
    same(client.set(key, b"x"), True)
    same(client.flush_all(), True)
    same(client.get(key), None)
    same(client.set(key, b"y"), True)
    same(client.get(key), b"y", "set after a flush")
    same(client.flush_all(delay=2), True)
    same(client.get(key), b"y", "before the delay is over")
    eventually(lambda: client.get(key) is None, "a delayed flush does nothing")
    # What is stored within the second of the flush may go with it.
    eventually(lambda: client.set(key, b"z") and client.get(key) == b"z", "nothing stays after a delayed flush")


@check("stats, of every kind")
def _(client):
    key = new_key("stats:prefix")
    before = client.stats()
    same(client.set(key, b"x"), True)
    same(client.get(key), b"x")
    after = client.stats()
    for name in (b"cmd_set", b"cmd_get", b"get_hits"):
        same(int(after[name]) - int(before[name]), 1, name.decode())
    holds(b"maxbytes" in client.stats("settings"), "no maxbytes in `stats settings`")
    holds(any(name.endswith(b":number") for name in client.stats("items")), "no number in `stats items`")
    holds(b"total_malloced" in client.stats("slabs"), "no total_malloced in `stats slabs`")
    holds(client.stats("sizes"), "nothing in `stats sizes`")
    peers = [value for name, value in client.stats("conns").items() if name.endswith(b":addr")]
    holds(any(b"127.0.0.1" in peer for peer in peers), f"no connection from here in `stats conns`: {peers}")
    same(raw(client, "stats reset"), b"RESET")
    same(int(client.stats()[b"get_hits"]), 0, "get_hits after `stats reset`")


@check("stats detail: counts by prefix")
def _(client):
    same(raw(client, "stats detail on"), b"OK")
    key = new_key("detailed:x")
    same(client.set(key, b"x"), True)
    same(client.get(key), b"x")
    same(client.get(key + "-missing"), None)
    same(client.delete(key), True)
    dump = raw(client, "stats detail dump", b"END\r\n")
    same(raw(client, "stats detail off"), b"OK")
    holds(b"PREFIX detailed get 2 hit 1 set 1 del 1\r\n" in dump, f"the dump says {dump!r:.200}")
    raises(MemcacheClientError, raw, client, "stats detail sideways")


@check("version, verbosity, cache_memlimit, shutdown, quit")
def _(client):
    holds(client.version().startswith(b"1."), "no version number")
    same(raw(client, "verbosity 0"), b"OK")
    limit = int(client.stats()[b"limit_maxbytes"])
    same(client.cache_memlimit(limit // (1 << 20)), True)
    same(int(client.stats()[b"limit_maxbytes"]), limit)
    raises(MemcacheUnknownCommandError, client.shutdown)
    holds(client.version(), "not there after a shutdown that is not allowed")
    client.quit()
    holds(client.version(), "no new connection after quit")


@check("an unknown command is an error, and the connection goes on")
def _(client):
    raises(MemcacheUnknownCommandError, raw, client, "nonsense")
    holds(client.version(), "no answer")


@check("no method answers with noreply")
def _(client):
    quiet = Client(client.server, **TIMEOUTS)
    key, other = new_key(), new_key()
    same(quiet.set(key, b"1"), True)
    same(quiet.get(key), b"1", "set")
    same(quiet.add(key, b"2"), True)
    same(quiet.get(key), b"1", "add")
    same(quiet.replace(key, b"3"), True)
    same(quiet.get(key), b"3", "replace")
    same(quiet.append(key, b"4"), True)
    same(quiet.prepend(key, b"2"), True)
    same(quiet.get(key), b"234", "append and prepend")
    quiet.incr(key, 1, noreply=True)
    same(quiet.get(key), b"235", "incr")
    quiet.decr(key, 5, noreply=True)
    same(quiet.get(key), b"230", "decr")
    _, cas = quiet.gets(key)
    quiet.cas(key, b"5", cas, noreply=True)
    quiet.cas(key, b"6", cas, noreply=True)
    same(quiet.get(key), b"5", "cas")
    same(quiet.set_many({key: b"7", other: b"8"}), [])
    same(quiet.get_many([key, other]), {key: b"7", other: b"8"}, "set_many")
    same(quiet.touch(key, 3600), True)
    same(quiet.touch(key, -1), True)
    same(quiet.get_many([key, other]), {other: b"8"}, "touch")
    same(quiet.delete(other), True)
    same(quiet.get(other), None, "delete")
    same(quiet.set_many({key: b"1", other: b"2"}), [])
    same(quiet.delete_many([key, other]), True)
    same(quiet.get_many([key, other]), {}, "delete_many")
    same(quiet.set(key, b"9"), True)
    same(quiet.flush_all(), True)
    same(quiet.get(key), None, "flush_all")
    same(quiet.raw_command("verbosity 0 noreply\r\nmn"), b"MN", "verbosity")


@check("serializers: pickle, compression")
def _(client):
    value = {"a": [1, 2.5, None], "b": "text", "c": b"bytes" * 1000}
    for serde in (PickleSerde(), CompressedSerde(min_compress_len=100)):
        typed = Client(client.server, serde=serde, default_noreply=False, **TIMEOUTS)
        key = new_key()
        for one in (value, 42, "text", b"bytes"):
            same(typed.set(key, one), True)
            same(typed.get(key), one, type(serde).__name__)


@check("meta commands, as raw bytes")
def _(client):
    key = new_key()
    same(raw(client, "mn"), b"MN")
    same(raw(client, f"mg {key} v"), b"EN")
    same(raw(client, f"ms {key} 5 T0 F7\r\nhello"), b"HD")
    same(raw(client, f"mg {key} v f s k", b"\r\nhello\r\n"), f"VA 5 f7 s5 k{key}".encode())
    same(raw(client, f"mg {key} t O123"), b"HD t-1 O123")
    same(raw(client, f"mg {new_key()} v q\r\nmn"), b"MN", "a quiet miss")
    same(raw(client, f"ms {key} 5 ME\r\nworld"), b"NS", "add")
    same(raw(client, f"ms {key} 1 MA\r\n!"), b"HD", "append")
    same(client.get(key), b"hello!")
    cas = client.gets(key)[1].decode()
    same(raw(client, f"ms {key} 1 C{int(cas) + 1000000}\r\nx"), b"EX", "another CAS id")
    same(raw(client, f"ms {key} 2 C{cas}\r\n10"), b"HD", "the CAS id")
    same(raw(client, f"ma {key} D5 v", b"\r\n15\r\n"), b"VA 2")
    same(raw(client, f"ma {key} MD D6 v", b"\r\n9\r\n"), b"VA 1")
    same(raw(client, f"ma {new_key()}"), b"NF")
    same(raw(client, f"ma {new_key()} N0 J13 v", b"\r\n13\r\n"), b"VA 2", "a counter that starts at 13")
    holds(raw(client, f"me {key}").startswith(f"ME {key} ".encode()), "me does not show the item")
    same(raw(client, f"me {new_key()}"), b"EN")
    same(raw(client, f"md {key} I T30"), b"HD", "invalidate")
    same(raw(client, f"mg {key} s"), b"HD s2 X W", "the first reader of a stale item")
    same(raw(client, f"mg {key} s"), b"HD s2 Z X", "the next")
    same(raw(client, f"md {key} q\r\nmn"), b"MN", "a quiet delete")
    same(raw(client, f"md {key}"), b"NF")
    same(raw(client, f"mg {key} N30 v", b"\r\n\r\n"), b"VA 0 W", "vivify")
    same(raw(client, "ms c3BhY2UgYQ== 2 b\r\nhi"), b"HD", "a key in base64")
    same(raw(client, "mg c3BhY2UgYQ== b k"), b"HD kc3BhY2UgYQ== b")


def every_method(client, pooled):
    """What the pooled and the hashing client have in common."""
    key, other = new_key(), new_key()
    same(client.set(key, b"1", noreply=False), True)
    same(client.add(key, b"2", noreply=False), False)
    same(client.replace(other, b"2", noreply=False), False)
    same(client.append(key, b"2", noreply=False), True)
    same(client.prepend(key, b"3", noreply=False), True)
    same(client.get(key), b"312")
    same(client.incr(key, 1), 313)
    same(client.decr(key, 3), 310)
    value, cas = client.gets(key)
    same(value, b"310")
    same(client.cas(key, b"4", cas, noreply=False), True)
    same(client.cas(key, b"5", cas, noreply=False), False)
    same(client.touch(key, 100, noreply=False), True)
    same(client.set_many({key: b"6", other: b"7"}, noreply=False), [])
    same(client.get_many([key, other]), {key: b"6", other: b"7"})
    same(set(client.gets_many([key, other])), {key, other})
    same(client.delete(key, noreply=False), True)
    client.delete_many([key, other], noreply=False)
    same(client.get_many([key, other]), {})
    client.set(key, b"8", noreply=False)
    client.flush_all(noreply=False)
    same(client.get(key), None)
    if pooled:
        holds(client.version(), "no version")
        holds(client.stats(), "no stats")
        same(client.raw_command("mn"), b"MN")
    client.quit()
    client.close()


@check("PooledClient")
def _(client):
    every_method(PooledClient(client.server, max_pool_size=4, **TIMEOUTS), pooled=True)


@check("HashClient, with and without a pool")
def _(client):
    for use_pooling in (False, True):
        every_method(HashClient([client.server], use_pooling=use_pooling, **TIMEOUTS), pooled=False)


if __name__ == "__main__":
    main(connect)
