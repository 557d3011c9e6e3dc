#!/usr/bin/env python3
"""Edge cases against a live server, over TCP and UDP from one client address.

    edges.py TCP UDP [--source ADDR]       addresses as HOST:PORT, [V6]:PORT

Prints `ok NAME` or `FAILED NAME: why` per case, and exits 1 if any failed. Meant to be true of
memcached too, except where a case says so: run it with --memcached to leave those out.
"""

import argparse
import random
import sys

import memc
from memc import hit, set_command

STORED = b"STORED\r\n"
MISS = b"END\r\n"
CASES = []


class Differs(Exception):
    """An answer other than the one expected."""


def case(name, memcached=True):
    """Registers a case. `memcached=False`: the genuine server is known to differ."""

    def register(function):
        CASES.append((name, function, memcached))
        return function

    return register


def same(got, wanted, what=""):
    """Raises Differs unless both are equal."""
    if got != wanted:
        show = [f"{text[:120]!r} ({len(text)} bytes)" for text in (got, wanted)]
        raise Differs(f"{what} {show[0]} instead of {show[1]}".strip())


def payload(size, seed=1):
    """`size` bytes that hold every byte value, line ends included."""
    return random.Random(f"{size}/{seed}").randbytes(size)


class Ends:
    """Both transports of one server, from one client address."""

    def __init__(self, args):
        self.tcp_address, self.udp_address, self.source = args.tcp, args.udp, args.source
        self.udp = memc.Udp(self.udp_address, (self.source, 0) if self.source else None)
        self.tcp = self.new_tcp()

    def new_tcp(self):
        """Another connection."""
        return memc.Tcp(self.tcp_address, (self.source, 0) if self.source else None)

    def store(self, key, value, flags=0):
        """`set` over TCP."""
        same(self.tcp.ask(set_command(key, value, flags)), STORED, "set")

    def both(self, key, wanted):
        """`get` over UDP and TCP answers `wanted`."""
        same(self.udp.ask(b"get %s\r\n" % key), wanted, "UDP get")
        same(self.tcp.ask(b"get %s\r\n" % key), wanted, "TCP get")


@case("set over TCP, get over UDP, from one address")
def _(ends):
    ends.store(b"side", b"door", 42)
    ends.both(b"side", hit(b"side", b"door", 42))


@case("set over UDP, get over TCP")
def _(ends):
    same(ends.udp.ask(set_command(b"fast", b"path")), STORED)
    ends.both(b"fast", hit(b"fast", b"path"))


@case("keys of 1 and of 250 bytes")
def _(ends):
    for key in (b"k", b"K" * 250):
        ends.store(key, b"v" + key)
        ends.both(key, hit(key, b"v" + key))


@case("a key of 251 bytes is refused")
def _(ends):
    key = b"K" * 251
    wanted = b"CLIENT_ERROR bad command line format\r\n"
    same(ends.udp.ask(b"get %s\r\n" % key), wanted, "UDP get")
    same(ends.tcp.ask(b"get %s\r\n" % key), wanted, "TCP get")
    # What follows the refusal differs between servers: a connection of its own.
    apart = ends.new_tcp()
    answer = apart.ask(set_command(key, b"x"))
    apart.close()
    same(answer[: len(wanted)], wanted, "set")
    same(ends.udp.ask(b"get %s\r\n" % key[:250]), hit(key[:250], b"v" + key[:250]), "its first 250 bytes")


@case("an empty value is a value")
def _(ends):
    ends.store(b"empty", b"")
    ends.both(b"empty", hit(b"empty", b""))


@case("a value of every byte, line ends and END included")
def _(ends):
    value = bytes(range(256)) + b"\r\nEND\r\nVALUE x 0 1\r\n"
    ends.store(b"bytes", value)
    same(ends.udp.ask(b"get bytes\r\n"), hit(b"bytes", value))


@case("replies around one, two and three datagrams")
def _(ends):
    for datagrams in (1, 2, 3):
        for by in (-2, -1, 0, 1, 2):
            size = datagrams * memc.DATAGRAM_PAYLOAD_MAX + by
            value = next(
                v for v in (payload(size - overhead) for overhead in range(20, 40)) if len(hit(b"edge", v)) == size
            )
            ends.store(b"edge", value)
            got = ends.udp.datagrams(b"get edge\r\n")
            same(ends.udp.reply.payload(), hit(b"edge", value), f"{size} bytes")
            if len(got) != -(-size // memc.DATAGRAM_PAYLOAD_MAX):
                raise Differs(f"{size} bytes in {len(got)} datagrams")


@case("values around 1,392 bytes, set and read over UDP")
def _(ends):
    for size in (1300, 1358, 1360, 1390, 1391, 1392, 1393, 1400):
        value = payload(size)
        command = set_command(b"near", value)
        # A request has to fit one Ethernet frame of 1,500 bytes; beyond that it goes over TCP.
        if len(command) + memc.HEADER.size <= 1452:
            same(ends.udp.ask(command), STORED, f"{size}: set")
        else:
            ends.store(b"near", value)
        ends.both(b"near", hit(b"near", value))


@case("64 KB over UDP")
def _(ends):
    value = payload(65536)
    ends.store(b"many", value)
    same(ends.udp.ask(b"get many\r\n"), hit(b"many", value))


@case("almost 1 MB over TCP; above the limit it is refused and the old value is gone")
def _(ends):
    value = payload(1_000_000)
    ends.store(b"large", value)
    same(ends.tcp.ask(b"get large\r\n"), hit(b"large", value), "get")
    answer = ends.tcp.ask(set_command(b"large", payload((1 << 20) + 1)))
    same(answer, b"SERVER_ERROR object too large for cache\r\n", "set")
    ends.both(b"large", MISS)


@case("many keys in one reply, numbered as one", memcached=False)
def _(ends):
    keys = [b"multi%d" % i for i in range(20)]
    for i, key in enumerate(keys):
        ends.store(key, payload(100, i))
    wanted = b"".join(hit(k, payload(100, i))[: -len(MISS)] for i, k in enumerate(keys)) + MISS
    asked = b"get " + b" ".join(k + b" nothing" + k for k in keys) + b"\r\n"
    same(ends.udp.ask(asked), wanted, "UDP")
    same(ends.tcp.ask(asked), wanted, "TCP")


@case("two commands in one datagram are answered in order, in one reply", memcached=False)
def _(ends):
    ends.store(b"first", b"1")
    ends.store(b"second", b"2")
    same(ends.udp.ask(b"get first\r\nget second\r\n"), hit(b"first", b"1") + hit(b"second", b"2"))


@case("a truncated set in one datagram does no harm to the next", memcached=False)
def _(ends):
    ends.store(b"innocent", b"bystander")
    truncated = memc.Udp(ends.udp_address, (ends.source, 0) if ends.source else None)
    truncated.send(b"set w 0 0 100\r\nhi\r\n")
    for _ in range(6):
        same(ends.udp.ask(b"get innocent\r\n"), hit(b"innocent", b"bystander"))
    truncated.close()


@case("requests that are not answered: no request, several datagrams, noreply")
def _(ends):
    quiet = memc.Udp(ends.udp_address, (ends.source, 0) if ends.source else None, first_id=40_000)
    for name, data, header in (
        ("header alone", b"", {}),
        ("total of 2", b"get side\r\n", {"total": 2}),
        ("total of 0", b"get side\r\n", {"total": 0}),
        ("noreply", b"set quiet 0 0 2 noreply\r\nhi\r\n", {}),
    ):
        if not quiet.silent(data, **header):
            raise Differs(f"{name}: there was an answer")
    quiet.close()
    ends.both(b"quiet", hit(b"quiet", b"hi"))


@case("an unknown command is an error, and the connection goes on")
def _(ends):
    same(ends.tcp.ask(b"nonsense\r\n"), b"ERROR\r\n")
    same(ends.udp.ask(b"nonsense\r\n"), b"ERROR\r\n")
    ends.both(b"side", hit(b"side", b"door", 42))


@case("delete")
def _(ends):
    ends.store(b"gone", b"soon")
    same(ends.udp.ask(b"delete gone\r\n"), b"DELETED\r\n")
    ends.both(b"gone", MISS)
    same(ends.tcp.ask(b"delete gone\r\n"), b"NOT_FOUND\r\n")


@case("an exptime in the past is a miss")
def _(ends):
    same(ends.tcp.ask(set_command(b"late", b"x", exptime=-1)), STORED)
    ends.both(b"late", MISS)


@case("one store behind every queue: 64 client ports see every write")
def _(ends):
    clients = [memc.Udp(ends.udp_address, (ends.source, 0) if ends.source else None) for _ in range(64)]
    for i, writer in enumerate(clients):
        same(writer.ask(set_command(b"shared", b"%d" % i)), STORED)
        reader = clients[(i + 17) % len(clients)]
        same(reader.ask(b"get shared\r\n"), hit(b"shared", b"%d" % i))
    for client in clients:
        client.close()


@case("hits and misses are counted, over both transports")
def _(ends):
    before = ends.tcp.stats()
    for _ in range(5):
        ends.udp.ask(b"get side\r\n")
        ends.udp.ask(b"get nobody\r\n")
        ends.tcp.ask(b"get side\r\n")
    ends.udp.ask(b"get side nobody side\r\n") if not ends.memcached else ends.tcp.ask(b"get side nobody side\r\n")
    after = ends.tcp.stats()
    moved = {k: int(after[k]) - int(before[k]) for k in ("cmd_get", "get_hits", "get_misses")}
    if moved != {"cmd_get": 18, "get_hits": 12, "get_misses": 6}:
        raise Differs(f"counters moved by {moved}")


def main():
    """Runs every case on its own pair of connections."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tcp")
    parser.add_argument("udp")
    parser.add_argument("--source")
    parser.add_argument("--label", default="")
    parser.add_argument("--memcached", action="store_true")
    args = parser.parse_args()
    failures = 0
    for name, function, memcached in CASES:
        if args.memcached and not memcached:
            continue
        name = f"{args.label}{name}"
        try:
            ends = Ends(args)
            ends.memcached = args.memcached
            function(ends)
            print(f"ok      {name}")
            ends.udp.close()
            ends.tcp.close()
        except (Differs, memc.Wrong, memc.NoReply, OSError, KeyError, ValueError) as e:
            failures += 1
            print(f"FAILED  {name}: {type(e).__name__}: {e}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
