#!/usr/bin/env python3
"""pylibmc (libmemcached): every method, in ASCII and in the binary protocol, and sets over UDP.

    pylibmc_battery.py HOST:PORT [--label TEXT]
"""

import pylibmc

from battery import check, eventually, holds, main, new_key, raises, same

BEHAVIORS = {"cas": True, "connect_timeout": 10_000, "receive_timeout": 30_000_000, "_poll_timeout": 30_000}
PROTOCOLS = {"ASCII": False, "binary": True}


class Server:
    """Makes the clients that a check wants."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def client(self, binary, prefix="", **behaviors):
        """One over TCP, or with the prefix `udp:` over UDP."""
        return pylibmc.Client([f"{prefix}{self.host}:{self.port}"], binary=binary, behaviors=BEHAVIORS | behaviors)


def check_both(name):
    """Registers a check for each protocol; it is given a client of that protocol."""

    def register(function):
        for protocol, binary in PROTOCOLS.items():
            check(f"{protocol}: {name}")(lambda server, binary=binary: function(server.client(binary)))
        return function

    return register


def refused(function, *args):
    """Whether the call fails in one of the two ways in which this client says so."""
    try:
        return function(*args) is False
    except pylibmc.NotFound:
        return True


@check_both("set, get, delete")
def _(client):
    key = new_key()
    same(client.get(key), None)
    same(client.get(key, "default"), "default")
    for value in (b"bytes", "text", 42, True, {"a": [1, None]}, b"", b"x" * 1_000_000):
        same(client.set(key, value), True)
        same(client.get(key), value)
    same(client.set(key, "text " * 10_000, min_compress_len=100), True)
    same(client.get(key), "text " * 10_000)
    client[key] = "item"
    holds(key in client, "not there after an assignment")
    same(client[key], "item")
    same(client.delete(key), True)
    same(client.delete(key), False)
    holds(key not in client, "still there after a delete")


@check_both("a value beyond the limit is refused, and the old one is gone")
def _(client):
    key = new_key()
    same(client.set(key, b"old"), True)
    raises(pylibmc.Error, client.set, key, b"x" * ((1 << 20) + 1))
    same(client.get(key), None)


@check_both("keys of 250 bytes")
def _(client):
    key = new_key().ljust(250, "k")
    same(client.set(key, "x"), True)
    same(client.get_multi([key]), {key: "x"})


@check_both("add, replace, append, prepend")
def _(client):
    key = new_key()
    holds(refused(client.replace, key, "0"), "replaced nothing")
    same(client.append(key, "0"), False)
    same(client.prepend(key, "0"), False)
    same(client.add(key, "1"), True)
    same(client.add(key, "2"), False)
    same(client.replace(key, "3"), True)
    same(client.append(key, "4"), True)
    same(client.prepend(key, "2"), True)
    same(client.get(key), "234")


@check_both("gets and cas")
def _(client):
    key = new_key()
    same(client.gets(key), (None, None))
    same(client.set(key, "1"), True)
    value, cas = client.gets(key)
    same(value, "1")
    same(client.cas(key, "2", cas), True)
    same(client.cas(key, "3", cas), False)
    same(client.get(key), "2")
    same(client.delete(key), True)
    raises(pylibmc.NotFound, client.cas, key, "4", cas)


@check_both("incr and decr")
def _(client):
    key = new_key()
    raises(pylibmc.NotFound, client.incr, key)
    raises(pylibmc.NotFound, client.decr, key)
    same(client.set(key, "20"), True)
    same(client.incr(key), 21)
    same(client.incr(key, 10), 31)
    same(client.decr(key), 30)
    same(client.decr(key, 100), 0)
    same(client.set(key, "no number"), True)
    raises(pylibmc.Error, client.incr, key)


@check_both("touch, and expiry")
def _(client):
    # After a touch in binary that succeeded, the libmemcached of this release waits for more until
    # this much time is over, whatever the server.
    client.behaviors["_poll_timeout"] = 2_000
    key, other = new_key(), new_key()
    same(client.touch(key, 10), False)
    same(client.set(key, "x", time=3600), True)
    same(client.set(other, "x", time=1), True)
    same(client.touch(other, 3600), True)
    same(client.touch(key, 1), True)
    eventually(lambda: client.get(key) is None, "a touched key does not expire")
    same(client.get(other), "x")


@check("ASCII: a negative time, which it writes without a sign, has passed")
def _(server):
    client = server.client(binary=False)
    key, other = new_key(), new_key()
    same(client.set(key, "x", time=-1), True)
    same(client.get(key), None)
    same(client.add(other, "x", time=-1), True)
    same(client.get(other), None, "added")


@check_both("set_multi, add_multi, get_multi, incr_multi, delete_multi")
def _(client):
    prefix = new_key("prefix") + ":"
    items = {str(i): str(i) for i in range(1, 101)}
    same(client.set_multi(items, key_prefix=prefix), [])
    same(client.get_multi([*items, "missing"], key_prefix=prefix), items)
    same(client.get_multi(list(items), key_prefix=prefix), items)
    client.incr_multi(list(items), key_prefix=prefix, delta=3)
    same(client.get_multi(["1", "100"], key_prefix=prefix), {"1": "4", "100": "103"})
    same(client.add_multi({"1": "x"}, key_prefix=prefix), ["1"])
    same(client.delete_multi(list(items), key_prefix=prefix), True)
    same(client.get_multi(list(items), key_prefix=prefix), {})


@check_both("stats, flush_all, disconnect_all, clone")
def _(client):
    key = new_key()
    same(client.set(key, "x"), True)
    ((_, stats),) = client.get_stats()
    holds(int(stats["curr_items"]) >= 1, "no item in the stats")
    same(client.flush_all(), True)
    same(client.get(key), None)
    client.disconnect_all()
    same(client.clone().set(key, "y"), True)
    same(client.get(key), "y", "a new connection")


@check_both("no method answers with noreply")
def _(client):
    quiet = client.clone()
    quiet.behaviors["_noreply"] = True
    key = new_key()
    quiet.set(key, "1")
    quiet.add(key, "2")
    same(quiet.get(key), "1", "set and add")
    quiet.replace(key, "3")
    quiet.append(key, "4")
    quiet.prepend(key, "2")
    same(quiet.get(key), "234", "replace, append and prepend")
    quiet.delete(key)
    same(quiet.get(key), None, "delete")


@check("sets, and deletes, over UDP")
def _(server):
    over_tcp = server.client(binary=False)
    for name, binary in PROTOCOLS.items():
        over_udp = server.client(binary, prefix="udp:")
        key = new_key()
        over_udp.set(key, "datagram")
        eventually(lambda: over_tcp.get(key) == "datagram", f"{name}: no set came")
        over_udp.append(key, "s")
        eventually(lambda: over_tcp.get(key) == "datagrams", f"{name}: no append came")
        over_udp.delete(key)
        eventually(lambda: over_tcp.get(key) is None, f"{name}: no delete came")


if __name__ == "__main__":
    main(Server)
