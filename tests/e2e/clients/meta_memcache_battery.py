#!/usr/bin/env python3
"""meta-memcache (meta protocol alone): every method, with leases, stale items and raw flags.

    meta_memcache_battery.py HOST:PORT [--label TEXT]
"""

import random
import threading

from meta_memcache import (
    CacheClient,
    Key,
    LeasePolicy,
    MemcacheServerError,
    Miss,
    RecachePolicy,
    RequestFlags,
    ServerAddress,
    SetMode,
    StalePolicy,
    Success,
    Value,
    connection_pool_factory_builder,
)
from meta_memcache.base.base_serializer import BaseSerializer, EncodedValue

from battery import check, eventually, holds, main, new_key, raises, same

REPLY_S = 30
READ_BUFFER = 1 << 20
"""The client makes this the socket's receive buffer. With 4 KB, its default, 1 MB takes 25 s, from memcached too."""
TTL_S = 1000
THREADS = 8
ROUNDS = 100
EVERY_BYTE = bytes(range(256))


class AsIs(BaseSerializer):
    """Bytes as they are: neither pickled nor compressed."""

    def serialize(self, key, value):
        return EncodedValue(data=value, encoding_id=0)

    def unserialize(self, data, encoding_id):
        return bytes(data)


class Server:
    """The address, and clients of it."""

    def __init__(self, host, port):
        self.address = ServerAddress(host, port)

    def client(self, **more):
        pool = connection_pool_factory_builder(
            max_pool_size=THREADS,
            connection_timeout=REPLY_S,
            recv_timeout=REPLY_S,
            read_buffer_size=READ_BUFFER,
        )
        return CacheClient.cache_client_from_servers([self.address], pool, **more)


def check_client(name, **more):
    """Registers a check that is given a client made with these options."""

    def register(function):
        check(name)(lambda server: function(server.client(**more)))
        return function

    return register


@check_client("set, get, delete")
def _(client):
    key = new_key()
    same(client.get(key), None)
    for value in ("text", "\u9375", 42, b"", EVERY_BYTE, b"\r\nEN\r\nVA 1\r\nx\r\n", [1, {"a": 2.5}], True):
        same(client.set(key, value, TTL_S), True)
        same(client.get(key), value)
    same(client.get_typed(key, list), None)
    raises(ValueError, client.get_typed, key, list, error_on_type_mismatch=True)
    same(client.delete(key), True)
    same(client.delete(key), False)
    same(client.invalidate(key), True, "invalidate of nothing")
    same(client.get(key), None)


@check_client("values of every size class", serializer=AsIs())
def _(client):
    numbers = random.Random(1)
    for size in (0, 1, 2, 63, 64, 1023, 1024, 1025, 1400, 1472, 9000, 65535, 65536, 500_000, 1_000_000):
        key, value = new_key(), numbers.randbytes(size)
        same(client.set(key, value, TTL_S), True)
        same(client.get(key), value)


@check_client("what is too large is refused, and the old value is gone", serializer=AsIs())
def _(client):
    key = new_key()
    same(client.set(key, b"old", TTL_S), True)
    raises(MemcacheServerError, client.set, key, bytes(1_100_000), TTL_S)
    same(client.get(key), None)
    same(client.set(key, b"new", TTL_S), True)
    same(client.get(key), b"new")


@check_client("keys of 250 bytes, and longer ones, which it hashes")
def _(client):
    for key in (new_key().ljust(250, "k"), new_key().ljust(251, "k"), new_key().ljust(5000, "k")):
        same(client.set(key, "x", TTL_S), True)
        same(client.get(key), "x")
        same(client.delete(key), True)


@check_client("binary keys, in base64", key_encoder_fn=lambda key: key.key.encode())
def _(client):
    for key in (new_key("\u9375 with spaces"), new_key("line\r\nEN\r\n")):
        same(client.set(key, key, TTL_S), True)
        same(client.get(key), key)
        same({k.key: v for k, v in client.multi_get([key]).items()}, {key: key})
        same(client.delta_initialize_and_get(key + "n", 1, 7, TTL_S), 7)
        same(client.delete(key), True)
        same(client.get(key), None)


@check_client("modes of set", serializer=AsIs())
def _(client):
    key = new_key()
    for mode in (SetMode.REPLACE, SetMode.APPEND, SetMode.PREPEND):
        same(client.set(key, b"x", TTL_S, set_mode=mode), False, mode.name)
    same(client.set(key, b"1", TTL_S, set_mode=SetMode.ADD), True)
    same(client.set(key, b"2", TTL_S, set_mode=SetMode.ADD), False)
    same(client.refill(key, b"2", TTL_S), False)
    same(client.set(key, b"3", TTL_S, set_mode=SetMode.REPLACE), True)
    same(client.set(key, EVERY_BYTE, TTL_S, set_mode=SetMode.APPEND), True)
    same(client.set(key, b"2", TTL_S, set_mode=SetMode.PREPEND), True)
    same(client.get(key), b"23" + EVERY_BYTE)
    same(client.delete(key), True)
    same(client.refill(key, b"4", TTL_S), True)
    same(client.get(key), b"4")


@check_client("CAS ids")
def _(client):
    key = new_key()
    same(client.get_cas(key), (None, None))
    first = client.set_cas(key, "1", TTL_S)
    holds(first, "no CAS id from set_cas")
    same(client.get_cas(key), ("1", first))
    same(client.get_cas_typed(key, str), ("1", first))
    same(client.set(key, "2", TTL_S, cas_token=first), True)
    same(client.set(key, "3", TTL_S, cas_token=first), False)
    same(client.set_cas(key, "3", TTL_S, cas_token=first), None)
    value, second = client.get_cas(key)
    same(value, "2")
    holds(second != first, "the CAS id did not change")
    same(client.delete(key, cas_token=first), False)
    same(client.invalidate(key, cas_token=first), False)
    same(client.delete(key, cas_token=second), True)
    same(client.set(key, "4", TTL_S, cas_token=second), False, "set with a CAS id where nothing is")
    same(client.get(key), None)


@check_client("a CAS id of the past stores the value as stale")
def _(client):
    key = new_key()
    policy = StalePolicy(mark_stale_on_cas_mismatch=True)
    old = client.set_cas(key, "1", TTL_S)
    new = client.set_cas(key, "2", TTL_S)
    same(client.set(key, "0", TTL_S, cas_token=new + 1, stale_policy=policy), False, "a CAS id of the future")
    same(client.set(key, "3", TTL_S, cas_token=old, stale_policy=policy), True)
    same(client.get(key), None, "the first to ask")
    same(client.get(key), "3", "the second")
    same(client.set(key, "4", TTL_S), True)
    same([client.get(key), client.get(key)], ["4", "4"])


@check_client("deletion that leaves the item stale: one client wins")
def _(client):
    key = new_key()
    policy = StalePolicy(mark_stale_on_deletion_ttl=TTL_S)
    same(client.set(key, "old", TTL_S), True)
    same(client.delete(key, stale_policy=policy), True)
    value, cas = client.get_cas(key)
    same(value, None, "the winner")
    holds(cas, "no CAS id for the winner")
    same(client.get_cas(key)[0], "old", "the others")
    raw = client.meta_get(Key(key), RequestFlags(return_value=True, return_client_flag=True))
    same((raw.value, raw.flags.stale, raw.flags.win), ("old", True, False))
    same(client.set(key, "new", TTL_S, cas_token=cas), True)
    raw = client.meta_get(Key(key), RequestFlags(return_value=True, return_client_flag=True))
    same((raw.value, raw.flags.stale, raw.flags.win), ("new", False, None))


@check_client("leases: a miss has one winner")
def _(client):
    key, waits = new_key(), []
    policy = LeasePolicy(ttl=TTL_S, miss_retries=3)
    value, cas = client.get_or_lease_cas(key, policy, lease_wait_fn=waits.append)
    same((value, waits), (None, []), "the winner")
    same(client.get_or_lease(key, policy, lease_wait_fn=waits.append), None, "a loser out of tries")
    same(len(waits), 2, "waits")
    # The winner fills in what the loser waits for.
    fill = lambda _: client.set(key, "filled", TTL_S, cas_token=cas)  # noqa: E731
    same(client.get_or_lease(key, policy, lease_wait_fn=fill), "filled")
    same(client.get_or_lease(key, policy), "filled")
    same(client.get(key), "filled")


@check_client("leases: of eight threads one wins", serializer=AsIs())
def _(client):
    key, answers = new_key(), []
    flags = RequestFlags(return_value=True, vivify_on_miss_ttl=TTL_S)

    def ask():
        answer = client.meta_get(Key(key), flags)
        answers.append((answer.value, answer.flags.win))

    together(ask)
    same(sorted(answers), sorted([(b"", True)] + [(b"", False)] * (THREADS - 1)))


@check_client("recache: one client renews what is about to expire")
def _(client):
    key = new_key()
    same(client.set(key, "x", 20), True)
    same(client.get(key, recache_policy=RecachePolicy(ttl=5)), "x", "not yet")
    same(client.get(key, recache_policy=RecachePolicy(ttl=100)), None, "the winner")
    same(client.get(key, recache_policy=RecachePolicy(ttl=100)), "x", "the others")
    same(client.set(key, "y", TTL_S), True)
    same(client.get(key, recache_policy=RecachePolicy(ttl=100)), "y")


@check_client("touch and expiry")
def _(client):
    key, gone = new_key(), new_key()
    same(client.touch(key, TTL_S), False)
    same(client.set(key, "1", TTL_S), True)
    same(client.set(gone, "1", TTL_S), True)
    ttl = RequestFlags(return_ttl=True)
    same(client.touch(key, 5000), True)
    holds(4900 <= client.meta_get(Key(key), ttl).flags.ttl <= 5000, "touch did not set the TTL")
    same(client.get(key, touch_ttl=0), "1")
    same(client.meta_get(Key(key), ttl).flags.ttl, -1)
    same(client.touch(gone, 1), True)
    eventually(lambda: client.get(gone) is None, "the item is still there")
    same(client.get(key), "1")


@check_client("multi-get, of more keys than fit one segment")
def _(client):
    numbers = random.Random(2)
    items = {new_key(): numbers.randbytes(numbers.randrange(2000)) for _ in range(500)}
    for key, value in items.items():
        same(client.set(key, value, TTL_S), True)
    absent = [new_key("absent") for _ in range(50)]
    asked = [*items, *absent]
    numbers.shuffle(asked)
    wanted = {key: items.get(key) for key in asked}
    same({key.key: value for key, value in client.multi_get(asked).items()} == wanted, True)
    with_cas = client.multi_get_cas(asked)
    same({key.key: value for key, (value, _) in with_cas.items()} == wanted, True)
    ids = [cas for key, (_, cas) in with_cas.items() if key.key in items]
    same(len(set(ids)), len(items), "distinct CAS ids")
    same(client.multi_get([]), {})


@check_client("arithmetic")
def _(client):
    key = new_key()
    same(client.delta(key, 1), False)
    same(client.delta_and_get(key, 1), None)
    same(client.delta_initialize(key, 1, 10, TTL_S), True)
    same(client.get(key), "10")
    same(client.delta_initialize_and_get(key, 5, 99, TTL_S), 15)
    same(client.delta_and_get(key, -7), 8)
    same(client.delta_and_get(key, -100), 0, "below 0")
    same(client.delta(key, 3), True)
    same(client.delta_and_get(key, 2**64 - 1), 2, "beyond 64 bits")
    same(client.delta_and_get(key, 2**63), 2**63 + 2)
    cas = client.get_cas(key)[1]
    same(client.delta(key, 1, cas_token=cas), True)
    same(client.delta(key, 1, cas_token=cas), False)
    same(client.delta(key, 1, refresh_ttl=5000), True)
    holds(4900 <= client.meta_get(Key(key), RequestFlags(return_ttl=True)).flags.ttl <= 5000, "no TTL from delta")
    same(client.set(key, "text", TTL_S), True)
    raises(MemcacheServerError, client.delta, key, 1)
    same(client.get(key), "text")


@check_client("no reply")
def _(client):
    key, counter, other = new_key(), new_key(), new_key()
    same(client.set(key, EVERY_BYTE, TTL_S, no_reply=True), True)
    same(client.get(key), EVERY_BYTE)
    # What fails answers nothing, either, or the next reply would be the wrong one.
    client.set(key, "x", TTL_S, no_reply=True, set_mode=SetMode.ADD)
    client.refill(other, "2", TTL_S, no_reply=True)
    client.touch(other, 500, no_reply=True)
    client.touch(new_key(), 500, no_reply=True)
    client.delta(new_key(), 1, no_reply=True)
    client.delta_initialize(counter, 1, 5, TTL_S, no_reply=True)
    client.delta(counter, 3, no_reply=True)
    client.delete(new_key(), no_reply=True)
    client.invalidate(new_key(), no_reply=True)
    same([client.get(key), client.get(other), client.get(counter)], [EVERY_BYTE, "2", "8"])
    client.delete(key, no_reply=True)
    same(client.get(key), None)


@check_client("every flag of the four meta commands", serializer=AsIs())
def _(client):
    key = Key(new_key())
    stored = client.meta_set(key, EVERY_BYTE, RequestFlags(cache_ttl=TTL_S, return_cas_token=True, opaque=b"opaque-1"))
    holds(isinstance(stored, Success), f"{stored!r}")
    same(stored.flags.opaque, b"opaque-1")
    flags = RequestFlags(
        return_value=True,
        return_client_flag=True,
        return_cas_token=True,
        return_ttl=True,
        return_size=True,
        return_last_access=True,
        return_fetched=True,
        return_key=True,
        opaque=b"2",
    )
    for fetched in (False, True):
        got = client.meta_get(key, flags)
        holds(isinstance(got, Value), f"{got!r}")
        same(got.value, EVERY_BYTE)
        seen = got.flags
        same((seen.fetched, seen.size, seen.client_flag), (fetched, 256, 0))
        same((seen.cas_token, seen.opaque, seen.win, seen.stale), (stored.flags.cas_token, b"2", None, False))
        holds(TTL_S - 100 <= seen.ttl <= TTL_S, f"ttl {seen.ttl}")
        holds(0 <= seen.last_access <= 100, f"last access {seen.last_access}")
    quiet = Key(new_key())
    client.meta_set(quiet, b"x", RequestFlags(cache_ttl=0))
    peek = RequestFlags(return_fetched=True, no_update_lru=True)
    same([client.meta_get(quiet, peek).flags.fetched for _ in range(2)], [False, False])
    holds(isinstance(client.meta_get(Key(new_key()), flags), Miss), "no miss")
    number = client.meta_arithmetic(
        Key(new_key()),
        RequestFlags(
            return_value=True,
            return_cas_token=True,
            vivify_on_miss_ttl=300,
            ma_initial_value=2**64 - 1,
            opaque=b"3",
        ),
    )
    same((number.value, number.flags.opaque), (b"18446744073709551615", b"3"))
    holds(number.flags.cas_token, f"{number.flags}")
    gone = client.meta_delete(key, RequestFlags(opaque=b"4"))
    holds(isinstance(gone, Success), f"{gone!r}")
    same(gone.flags.opaque, b"4")


def together(function):
    """Runs it in many threads; raises what any raised."""
    failures = []

    def guarded():
        try:
            function()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=guarded) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@check_client("eight threads")
def _(client):
    counter, shared = new_key(), new_key()
    client.set(shared, 0, TTL_S)

    def work():
        mine = new_key()
        for i in range(ROUNDS):
            value = b"%d " % i * i
            same(client.set(mine, value, TTL_S), True)
            same(client.get(mine), value)
            client.delta_initialize(counter, 1, 1, TTL_S)
            while True:
                seen, cas = client.get_cas(shared)
                if client.set(shared, seen + 1, TTL_S, cas_token=cas):
                    break

    together(work)
    same(client.get(counter), str(THREADS * ROUNDS))
    same(client.get(shared), THREADS * ROUNDS)


if __name__ == "__main__":
    main(Server)
