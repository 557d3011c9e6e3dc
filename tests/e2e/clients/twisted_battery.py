#!/usr/bin/env python3
"""Twisted's memcache protocol: every method, and many requests at a time on one connection.

    twisted_battery.py HOST:PORT [--label TEXT]
"""

import argparse
import sys

from twisted.internet import defer, endpoints, reactor
from twisted.logger import globalLogBeginner
from twisted.protocols.memcache import ClientError, MemCacheProtocol, ServerError

from battery import new_key, same

CHECKS = []


def check(name):
    """Registers a check, made with inlineCallbacks. It is given a connection."""

    def register(function):
        CHECKS.append((name, defer.inlineCallbacks(function)))
        return function

    return register


def key_bytes():
    """A key as this library wants it."""
    return new_key().encode()


@check("set, get, add, replace, append, prepend, delete")
def _(server):
    key = key_bytes()
    same((yield server.get(key)), (0, None))
    for value in (b"text", b"", b"\r\nEND\r\n\0", b"x" * 1_000_000):
        same((yield server.set(key, value, flags=7)), True)
        same((yield server.get(key)), (7, value))
    same((yield server.add(key, b"1")), False)
    same((yield server.replace(key, b"2")), True)
    same((yield server.append(key, b"3")), True)
    same((yield server.prepend(key, b"1")), True)
    same((yield server.get(key)), (0, b"123"))
    same((yield server.delete(key)), True)
    same((yield server.delete(key)), False)
    same((yield server.replace(key, b"1")), False)
    same((yield server.append(key, b"1")), False)


@check("CAS ids, several keys")
def _(server):
    key, missing = key_bytes(), key_bytes()
    yield server.set(key, b"1")
    _, cas, _ = yield server.get(key, True)
    same((yield server.checkAndSet(key, b"2", cas)), True)
    same((yield server.checkAndSet(key, b"3", cas)), False)
    same((yield server.checkAndSet(missing, b"3", cas)), False)
    same((yield server.getMultiple([key, missing])), {key: (0, b"2"), missing: (0, None)})


@check("increment, decrement, what has expired")
def _(server):
    key = key_bytes()
    same((yield server.increment(key)), False)
    yield server.set(key, b"20")
    same((yield server.increment(key, 5)), 25)
    same((yield server.decrement(key, 50)), 0)
    yield server.set(key, b"x", expireTime=-1)
    same((yield server.get(key)), (0, None))


@check("refusals leave the connection usable")
def _(server):
    key = key_bytes()
    yield server.set(key, b"no number")
    for request, refusal in ((lambda: server.increment(key), ClientError),
                             (lambda: server.set(key, b"x" * ((1 << 20) + 1)), ServerError)):
        try:
            got = yield request()
        except refusal:
            got = refusal
        same(got, refusal)
    same((yield server.get(key)), (0, None))


@check("3,000 requests at a time")
def _(server):
    requests = []
    for number in range(1000):
        key = key_bytes()
        requests += [server.set(key, b"%d" % number), server.increment(key), server.get(key)]
    wanted = [answer for n in range(1000) for answer in (True, n + 1, (0, b"%d" % (n + 1)))]
    same((yield defer.gatherResults(requests)), wanted)


@check("version, stats, flushAll")
def _(server):
    key = key_bytes()
    yield server.set(key, b"x")
    same((yield server.version())[:2], b"1.")
    same(int((yield server.stats())[b"curr_items"]) >= 1, True)
    same(b"maxbytes" in (yield server.stats(b"settings")), True)
    same((yield server.flushAll()), True)
    same((yield server.get(key)), (0, None))


@defer.inlineCallbacks
def run(host, port, label):
    """Runs every check on a new connection; returns how many failed."""
    failures = 0
    for name, function in CHECKS:
        try:
            server = yield endpoints.connectProtocol(
                endpoints.TCP4ClientEndpoint(reactor, host, port), MemCacheProtocol(timeOut=30)
            )
            yield function(server)
            yield server.transport.loseConnection()
            print(f"ok      {label}{name}", flush=True)
        except Exception as e:  # whatever the library under test raises is a finding
            failures += 1
            print(f"FAILED  {label}{name}: {type(e).__name__}: {e}", flush=True)
    return failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("--label", default="")
    args = parser.parse_args()
    to_host, _, to_port = args.server.rpartition(":")
    # Refusals, which are asked for, would be logged.
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False)
    failed = []
    done = run(to_host, int(to_port), args.label)
    done.addBoth(failed.append).addBoth(lambda _: reactor.stop())
    reactor.run()
    sys.exit(0 if failed == [0] else 1)
