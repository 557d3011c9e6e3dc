#!/usr/bin/env python3
"""Edge cases against a live server, over TCP and UDP from one client address.

    edges.py TCP UDP [--source ADDR]       addresses as HOST:PORT, [V6]:PORT

`--without NAME` leaves a case out. Prints `ok NAME` or `FAILED NAME: why` per case, and exits 1 if any failed. Meant to be true of
memcached too, except where a case says so: run it with --memcached to leave those out.
"""

import argparse
import random
import socket
import struct
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
    # Whether the data block is taken for commands differs between servers: a connection of its own.
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


@case("a request longer than a packet slot is refused in words", memcached=False)
def _(ends):
    refusal = b"SERVER_ERROR request too large for UDP, use TCP\r\n"
    ends.store(b"slot", b"x")
    for size in (1_900, 3_000, 60_000):
        same(ends.udp.ask(set_command(b"slot", payload(size))), refusal, f"set of {size}")
        line = b"get slot " + b"k" * 200 + b" missing" * ((size - 210) // 8) + b"\r\n"
        same(ends.udp.ask(line), refusal, f"get of {len(line)} bytes")
    ends.udp.send(packet(1, b"slot", payload(3_000), SETX))
    same(statuses(ends.udp.socket.recv(65536)[8:]), [(1, 3)], "binary")
    ends.both(b"slot", hit(b"slot", b"x"))


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


@case("what is above the limit is refused when all of it has come, and not before")
def _(ends):
    request, refusal = set_command(b"large", payload((1 << 20) + 1)), b"SERVER_ERROR object too large for cache\r\n"
    connection = ends.new_tcp()
    connection.socket.sendall(request[:-1])
    connection.socket.settimeout(0.3)
    try:
        raise Differs(f"{connection.socket.recv(100)}, and its last byte has not come")
    except TimeoutError:
        connection.socket.settimeout(20)
    same(connection.ask(request[-1:]), refusal, "set")
    same(connection.ask(b"get large\r\n"), MISS, "get")
    connection.close()


@case("what fits the limit, but not as an item, is too large to be joined, too")
def _(ends):
    ends.store(b"joined", b"v")
    for verb in (b"append", b"prepend"):
        answer = ends.tcp.ask(set_command(b"joined", payload((1 << 20) - 6)).replace(b"set", verb, 1))
        same(answer, b"SERVER_ERROR object too large for cache\r\n", verb.decode())
    same(ends.tcp.ask(b"get joined\r\n"), hit(b"joined", b"v"), "get")


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


def whole(ends, sent, enough=lambda got: False, half=False):
    """All that a new connection answers to `sent`, up to its end or to `enough`, and whether it ended.
    `half`: the client says that it will send no more."""
    connection = ends.new_tcp()
    connection.socket.settimeout(20)
    got, ended = b"", False
    try:
        connection.socket.sendall(sent)
        if half:
            connection.socket.shutdown(socket.SHUT_WR)
        while not ended and not enough(got):
            more = connection.socket.recv(1 << 20)
            got, ended = got + more, not more
    except TimeoutError:
        raise Differs(f"{sent[:60]}: no more than {got[:60]} in 20 s") from None
    except (ConnectionResetError, BrokenPipeError):
        ended = True
    connection.close()
    return got, ended


def says(ends, sent, wanted):
    """A new connection answers exactly `wanted` and goes on."""
    got, ended = whole(ends, sent + b"mn\r\n", lambda got: len(got) >= len(wanted) + 4)
    same((got, ended), (wanted + b"MN\r\n", False), f"{sent[:60]}")


def answers(ends, sent, wanted):
    """A new connection answers `sent` with these opcodes and statuses, and goes on."""
    got, ended = whole(ends, sent + packet(NOOP), lambda got: got[-24:-22] == bytes([0x81, NOOP]))
    same((statuses(got), ended), ([*wanted, (NOOP, 0)], False), f"{sent[:24]}")


def packet(opcode, key=b"", value=b"", extras=b"", vbucket=0, magic=0x80):
    """A request of the binary protocol."""
    body = extras + key + value
    header = struct.pack("!BBHBBHIIQ", magic, opcode, len(key), len(extras), 0, vbucket, len(body), 7, 0)
    return header + body


def statuses(packets):
    """Opcodes and statuses of binary answers."""
    found = []
    while len(packets) >= 24:
        opcode, status, body = struct.unpack("!xBxxxxHI", packets[:12])
        found.append((opcode, status))
        packets = packets[24 + body :]
    same(packets, b"", "half an answer")
    return found


NOOP, SETX = 0x0A, bytes(8)


@case("a client that says it will send no more gets every answer")
def _(ends):
    pipeline = b"".join(set_command(b"half%d" % i, b"hello") + b"get half%d\r\n" % i for i in range(500))
    wanted = b"".join(STORED + hit(b"half%d" % i, b"hello") for i in range(500))
    same(whole(ends, pipeline, half=True), (wanted, True), "small")
    value = payload(1_000_000)
    wanted = STORED + hit(b"half", value) * 20
    same(whole(ends, set_command(b"half", value) + b"get half\r\n" * 20, half=True), (wanted, True), "large")
    same(whole(ends, b"mn\r\nset half 0 0 10\r\nabc", half=True), (b"MN\r\n", True), "cut off")
    same(whole(ends, b"mn\r\nget hal", half=True), (b"MN\r\n", True), "a line without an end")


@case("quit within a pipeline: what stands before it is answered")
def _(ends):
    same(whole(ends, b"mn\r\nquit\r\nmn\r\n"), (b"MN\r\n", True))


@case("a connection that is reset with requests on their way harms nobody")
def _(ends):
    value = payload(100_000)
    ends.store(b"reset", value)
    for rest in (b"", b"set reset 0 0 100\r\nabc"):
        gone = ends.new_tcp()
        gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.socket.sendall(b"get reset\r\n" * 1000 + rest)
        gone.close()
    ends.both(b"reset", hit(b"reset", value))


@case("who never reads is not read from, and costs no memory")
def _(ends):
    ends.store(b"heavy", payload(100_000))
    pid = int(ends.tcp.stats()["pid"])

    def resident_kb():
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    before, sent, gets = resident_kb(), 0, b"get heavy\r\n" * 10_000
    deaf = ends.new_tcp()
    deaf.socket.settimeout(1.5)
    try:
        while sent < 100_000_000:
            sent += deaf.socket.send(gets)
    except TimeoutError:
        pass
    grown = resident_kb() - before
    same(ends.new_tcp().ask(b"mn\r\n"), b"MN\r\n", "another connection")
    deaf.close()
    if sent >= 100_000_000 or grown > 20_000:
        raise Differs(f"took {sent} bytes of requests and {grown} KB of memory")


@case("10,000 and 100,000 keys in one get over TCP")
def _(ends):
    ends.store(b"last", b"one")
    for count in (10_000, 100_000):
        line = b"get " + b" ".join(b"key%06d" % i for i in range(count)) + b" last\r\n"
        same(ends.tcp.ask(line), hit(b"last", b"one"), f"{count}")


@case("a key of 250 bytes in letters of two and three")
def _(ends):
    for key in ("\u00e9" * 125, "\u65e5\u672c\u8a9e" * 27 + "\u00e9\u00e9\u00e9x"):
        key = key.encode()
        same(len(key), 250)
        ends.store(key, b"x")
        ends.both(key, hit(key, b"x"))
        same(ends.tcp.ask(b"delete %s\r\n" % key), b"DELETED\r\n")


@case("lines that are nearly commands")
def _(ends):
    ends.store(b"tab\tkey", b"x")
    for line, wanted in (
        (b"get\tside", b"ERROR\r\n"),
        (b"get tab\tkey", hit(b"tab\tkey", b"x")),
        (b"GET side", b"ERROR\r\n"),
        (b"VERSION", b"ERROR\r\n"),
        (b"", b"ERROR\r\n"),
        (b"   ", b"ERROR\r\n"),
        (b"get", b"ERROR\r\n"),
        (b"get ", b"ERROR\r\n"),
        (b"\0", b"ERROR\r\n"),
        (b"get no\0body", MISS),
        (b"set side 0 0 -1", b"CLIENT_ERROR bad command line format\r\n"),
        (b"set side 0 0 4294967295", b"CLIENT_ERROR bad command line format\r\n"),
    ):
        for end in (b"\r\n", b"\n"):
            says(ends, line + end, wanted)


@case("long lines: of 2,000 bytes a command like others, without an end the end of the connection")
def _(ends):
    says(ends, b"x" * 2000 + b"\r\n", b"ERROR\r\n")
    same(whole(ends, b"x" * 100_000), (b"", True))


@case("binary: a vbucket and a data type are looked at by nobody")
def _(ends):
    answers(ends, packet(1, b"vb", b"v", SETX, vbucket=77) + packet(0, b"vb", vbucket=3), [(1, 0), (0, 0)])


@case("binary: opcodes that are none, and SASL's")
def _(ends):
    for opcode in (0x1F, 0x20, 0x25, 0x3D, 0x40, 0x7F, 0xFF):
        answers(ends, packet(opcode), [(opcode, 0x81)])
    # SASL is switched off: its commands are read, and are none.
    for request in (packet(0x20), packet(0x21, b"PLAIN", b"\0user\0secret"), packet(0x22, b"PLAIN", b"more")):
        answers(ends, request, [(request[1], 0x81)])


@case("binary: a value above the limit is thrown away, and the next request is read")
def _(ends):
    value = bytes(2 << 20)
    for opcode, extras in ((0x01, SETX), (0x02, SETX), (0x0E, b""), (0x11, SETX)):
        answers(ends, packet(opcode, b"large", value, extras), [(opcode, 3)])


@case("the dialects do not mix on one connection")
def _(ends):
    got, ended = whole(ends, packet(NOOP) + b"get side\r\n" + bytes(24))
    same((statuses(got), ended), ([(NOOP, 0)], True), "ASCII behind binary")
    got, _ = whole(ends, packet(NOOP, magic=0x81) + b"\r\n", lambda got: len(got) >= 7)
    same(got[:7], b"ERROR\r\n", "an answer's magic")


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
    parser.add_argument("--without", default="")
    args = parser.parse_args()
    failures = 0
    for name, function, memcached in CASES:
        if (args.memcached and not memcached) or name == args.without:
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
