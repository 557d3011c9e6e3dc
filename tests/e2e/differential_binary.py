#!/usr/bin/env python3
"""The same binary requests to the genuine memcached and to gnomon: the answers must be the same.

    differential_binary.py GENUINE OURS [--count N] [--seed S] [--only I]     addresses as HOST:PORT

Each sequence is some requests, valid or damaged, with keys of its own: over TCP pipelined in rounds
and cut at random places, or over UDP one in each datagram. A round may ask for the CAS ids that
the rounds before it were given. `--only I` repeats one sequence alone. What may differ is put out
of the way first: statistics, the text of `version`, and CAS ids, which are numbered in order of
appearance. Differences that are meant (docs/protocol.md) are never generated.
Prints `ok NAME` or `FAILED NAME: why`, and exits 1 on any difference.
"""

import argparse
import random
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

import memc

HEADER = struct.Struct("!BBHBBHI4sQ")
REQUEST, RESPONSE = 0x80, 0x81
GET, SET, ADD, REPLACE, DELETE, INCREMENT, DECREMENT, QUIT, FLUSH = range(9)
GETQ, NOOP, VERSION, GETK, GETKQ, APPEND, PREPEND, STAT = range(9, 17)
SETQ, ADDQ, REPLACEQ, DELETEQ, INCREMENTQ, DECREMENTQ, QUITQ, FLUSHQ, APPENDQ, PREPENDQ = range(0x11, 0x1B)
TOUCH, GAT, GATQ, SASL_LIST, SASL_AUTH, SASL_STEP, GATK, GATKQ = 0x1C, 0x1D, 0x1E, *range(0x20, 0x25)
GETS = (GET, GETQ, GETK, GETKQ)
GATS = (TOUCH, GAT, GATQ, GATK, GATKQ)
SETS = (SET, ADD, REPLACE, SETQ, ADDQ, REPLACEQ)
JOINS = (APPEND, PREPEND, APPENDQ, PREPENDQ)
DELETES = (DELETE, DELETEQ)
COUNTS = (INCREMENT, DECREMENT, INCREMENTQ, DECREMENTQ)
SASL = (SASL_AUTH, SASL_STEP)
UNKNOWN = (0x1B, 0x1F, 0x25, 0x30, 0x3C, 0x7F, 0x80, 0xFF)
# These name a body; whoever makes it longer than they say means what follows to be read twice.
NO_LONGER = (*GATS, STAT)
# No exptime that ends within a run, but one that ended long ago.
EXPTIMES = (0, 0, 0, 1000, 2592000, 2592001, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
# From 2^63 on the genuine server takes a number for none if there is a `-` behind it, wherever.
NUMBERS = (0, 1, 5, 9, 10, 99, 1 << 31, 1 << 32, 1 << 57, 10**17)
TEXTS = (b"0", b"9", b"10", b"99   ", b"288230376151711744", b"18446744073709551616", b"", b" 7", b"-1", b"x", b"12 x")
# What may be joined to a number. Longer than 128 bytes, blanks and all, gnomon takes none for one.
# Nothing but blanks is read by the genuine server as what stands behind them in memory.
JOINED = (b"0", b"9", b"x", b"")
LENGTHS = (0, 1, 2, 10, 100, 1300, 1400, 5000, 20_000)
LIMIT_BYTES = 1 << 20
UDP_REQUEST_MAX = 1400
ANSWER_S = 20.0
DIFFERENCES_MAX = 10
SHOWN_BYTES = 120


@dataclass
class Request:
    """One request, its lengths as they are or as they are said to be."""

    opcode: int
    key: bytes = b""
    extras: bytes = b""
    value: bytes = b""
    opaque: bytes = bytes(4)
    cas: int = 0
    magic: int = REQUEST
    data_type: int = 0
    vbucket: int = 0
    # The CAS id with this place among those seen, if any: then `cas` is not looked at.
    cas_place: int | None = None
    said: dict = field(default_factory=dict)

    def packet(self, seen):
        """Its bytes for a server that has given these CAS ids."""
        cas = self.cas
        if self.cas_place is not None and seen:
            cas = seen[self.cas_place % len(seen)]
        body = self.extras + self.key + self.value
        lengths = {"key": len(self.key), "extras": len(self.extras), "body": len(body)} | self.said
        header = HEADER.pack(
            self.magic, self.opcode, lengths["key"], lengths["extras"], self.data_type, self.vbucket,
            lengths["body"], self.opaque, cas,
        )
        return header + body

    def __str__(self):
        parts = f"opcode {self.opcode:#04x} key {self.key[:30]!r}({len(self.key)}) extras {self.extras.hex()}"
        value = f" value {self.value[:30]!r}({len(self.value)})" if self.value else ""
        cas = f" cas {self.cas if self.cas_place is None else f'number {self.cas_place}'}"
        magic = f" magic {self.magic:#x}" if self.magic != REQUEST else ""
        return parts + value + cas + magic + (f" said {self.said}" if self.said else "")


class Sequence:
    """One conversation, made from nothing but a seed. `mark` keeps the keys of a second try apart."""

    def __init__(self, seed, number, mark):
        self.rng = rng = random.Random(f"{seed}/{number}")
        self.prefix = b"%d%s" % (number, mark)
        self.udp = rng.random() < 0.3
        self.keys = [self.key() for _ in range(rng.randint(2, 5))]
        # Not both kinds: a flush to come brings back what one before it has flushed, in memcached.
        self.flushes = rng.choice(((b"", bytes(4)), (struct.pack("!I", 1_000_000),)))
        self.damaged = self.started = False
        self.rounds = []
        for _ in range(rng.randint(1, 3)):
            self.number_fetched = False
            self.rounds.append([self.request() for _ in range(rng.randint(1, 8))])

    def key(self):
        """A key that no other sequence has. Any byte may be in it."""
        rng = self.rng
        return self.prefix + b"/" + rng.randbytes(rng.choice((1, 1, 5, 10, 30, 100, 249 - len(self.prefix))))

    def value(self, key, kind):
        """The first key has short texts, numbers most of them, the others anything."""
        rng = self.rng
        if key == self.keys[0]:
            return rng.choice(JOINED if kind is JOINS else TEXTS)
        size = rng.choice(LENGTHS)
        if not self.udp and rng.random() < 0.01:
            size = LIMIT_BYTES + rng.choice((-400, -310, -70, -59, -58, -57, 0, 1, 1000))
        if self.udp:
            size = min(size, 1000)
        return (rng.randbytes(64) * (size // 64 + 1))[:size]

    def request(self):
        rng = self.rng
        kind = rng.choices(
            (GETS, GATS, SETS, JOINS, DELETES, COUNTS, (NOOP, VERSION), (FLUSH, FLUSHQ), (STAT,), SASL, UNKNOWN, (QUIT, QUITQ)),
            (10, 5, 12, 5, 4, 8, 2, 0.3, 0.5, 0.5, 0.5, 0.2),
        )[0]
        if self.udp and kind in ((FLUSH, FLUSHQ), (STAT,)):
            kind = GETS
        opcode = rng.choice(kind)
        made = Request(opcode, opaque=rng.randbytes(4))
        if kind in (GETS, GATS, SETS, JOINS, DELETES, COUNTS):
            made.key = rng.choice(self.keys)
        if kind is COUNTS:
            # The genuine server fills a number up with blanks or not, as the answer to an earlier
            # get of it has left or has not.
            made.key = self.keys[0]
            if self.number_fetched:
                made.opcode, kind = GETK, GETS
        self.number_fetched |= kind in (GETS, GATS) and made.key == self.keys[0] and not self.udp
        exptime = struct.pack("!I", rng.choice(EXPTIMES))
        if kind is GATS:
            made.extras = exptime
        elif kind is SETS:
            made.extras = struct.pack("!I", rng.choice((0, 5, 0xFFFFFFFF))) + exptime
            made.value = self.value(made.key, kind)
        elif kind is JOINS:
            made.value = self.value(made.key, kind)
        elif kind is COUNTS:
            made.extras = struct.pack("!QQ", rng.choice(NUMBERS), rng.choice(NUMBERS)) + exptime
        elif opcode in (FLUSH, FLUSHQ):
            made.extras = rng.choice(self.flushes)
        elif kind is STAT:
            made.key = rng.choice((b"", b"settings", b"items", b"slabs", b"bogus", b"conns", b"item"))
        elif kind is SASL:
            made.key, made.value = b"PLAIN", b"\0user\0password"
        elif kind is UNKNOWN:
            made.value = rng.choice((b"", b"x" * 50))
        if rng.random() < 0.15:
            made.cas_place = rng.randrange(20)
        elif rng.random() < 0.03:
            made.cas = rng.choice((1 << 60, (1 << 64) - 1))
        if rng.random() < 0.05:
            made.data_type, made.vbucket = rng.randrange(256), rng.randrange(65536)
        if not self.damaged and rng.random() < 0.04:
            self.damage(made)
            self.damaged = True
        self.started = True
        return made

    def damage(self, made):
        """Makes a request wrong in one way. Mostly the connection ends with it."""
        rng = self.rng
        parts = len(made.extras) + len(made.key)
        whole = parts + len(made.value)
        is_unknown = made.opcode in UNKNOWN
        takes_value = made.opcode in (*SETS, *JOINS, *SASL, *UNKNOWN)
        kind = rng.randrange(7)
        if kind == 0 and not is_unknown:
            size = rng.choice([n for n in (0, 1, 3, 4, 5, 7, 8, 9, 19, 20, 21, 30, 255) if n != len(made.extras)])
            made.extras = (made.extras + bytes(255))[:size]
        elif kind == 1 and not is_unknown:
            made.key = b"" if made.key else rng.choice(self.keys)
        elif kind == 2:
            made.key = (made.key + b"k" * 66000)[: rng.choice((251, 252, 300, 1000) if self.udp else (251, 252, 1000, 65535))]
        elif kind == 3 and whole > len(made.value):
            made.said["body"] = rng.randrange(parts)
        elif kind == 4 and not takes_value and made.opcode not in NO_LONGER:
            made.value = rng.randbytes(rng.choice((1, 4, 24, 100)))
        elif kind == 5 and not takes_value and made.opcode not in NO_LONGER:
            made.said["body"] = rng.choice((whole + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF))
        elif kind == 6 and self.started and not self.udp:
            # Not in the first: its first byte tells the dialect.
            made.magic = rng.choice((0x00, 0x7F, 0x81, 0xFF))
        else:
            made.opcode, made.key, made.extras, made.value = NOOP, b"k", b"", b""

    def pieces(self, data):
        """The data, cut anywhere."""
        rng = self.rng
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 3, 8))))
        for start, end in zip([0, *cuts], [*cuts, len(data)]):
            for at in range(start, end, 65536):
                yield data[at : min(end, at + 65536)]


def answers(data):
    """The packets of a reply as tuples, and what is left behind them."""
    found, at = [], 0
    while len(data) - at >= HEADER.size:
        magic, opcode, key, extras, data_type, status, body, opaque, cas = HEADER.unpack_from(data, at)
        end = at + HEADER.size + body
        if end > len(data):
            break
        found.append((magic, opcode, key, extras, data_type, status, opaque, cas, data[at + HEADER.size : end]))
        at = end
    return found, data[at:]


class Normal:
    """Puts out of the way what may differ between two servers."""

    def __init__(self):
        self.seen = []

    def form(self, packets):
        """The packets with CAS ids numbered in order of appearance."""
        parts = []
        for magic, opcode, key, extras, data_type, status, opaque, cas, body in packets:
            if cas and cas not in self.seen:
                self.seen.append(cas)
            if opcode == STAT and key:
                continue
            if opcode == VERSION and status == 0:
                body = b""
            cas = self.seen.index(cas) + 1 if cas else 0
            parts.append((magic, opcode, key, extras, data_type, status, opaque.hex(), f"cas {cas}", body))
        return parts


def tcp(server, sequence, idle_s):
    """All that the server answered, and how it ended: `end` when every round was answered whole,
    `closed` when the server hung up, `waits` when it waits for more."""
    _, sockaddr = memc.address(server)
    normal, forms = Normal(), []
    with socket.create_connection(sockaddr[:2], timeout=ANSWER_S) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, requests in enumerate(sequence.rounds):
            sentinel = b"end%d" % number
            data = b"".join(r.packet(normal.seen) for r in requests) + Request(NOOP, opaque=sentinel).packet([])
            s.settimeout(ANSWER_S)
            pieces = list(sequence.pieces(data))
            try:
                for piece in pieces:
                    s.sendall(piece)
                    if len(pieces) > 1:
                        time.sleep(0.0003)
            except ConnectionError:
                # The server hung up on what it cannot follow; what it said first is still there.
                pass
            got, end = b"", None
            s.settimeout(idle_s)
            while end is None:
                try:
                    more = s.recv(1 << 20)
                    got += more
                    end = None if more else "closed"
                except TimeoutError:
                    end = "waits"
                except ConnectionError:
                    end = "closed"
                packets, left = answers(got)
                if not left and packets and packets[-1][1] == NOOP and packets[-1][6] == sentinel:
                    end = "end"
            forms += normal.form(packets) + ([left] if left else [])
            if end != "end":
                return forms, end
    return forms, "end"


def udp(server, sequence, always_frames):
    """The same over UDP, a request in each datagram and a `noop` behind it. Once that is answered,
    what was silent so far has nothing to say. The genuine server says so with a frame of 0 datagrams,
    and in any order: for that it is waited.
    """
    normal, forms = Normal(), []
    client = memc.Udp(server)
    client.socket.settimeout(ANSWER_S)
    noop = Request(NOOP).packet([])
    for request in (r for requests in sequence.rounds for r in requests):
        reply = memc.Reassembly(client.send(request.packet(normal.seen)[:UDP_REQUEST_MAX]))
        last = memc.Reassembly(client.send(noop))
        done = ended = False
        while not (ended and (done or not always_frames)):
            datagram = client.socket.recv(65536)
            if datagram[:2] == struct.pack("!H", last.request_id):
                ended = last.add(datagram)
            elif datagram[4:6] == bytes(2):
                done = True
            else:
                done = reply.add(datagram)
        if reply.total:
            packets, left = answers(reply.payload())
            forms += normal.form(packets) + ([left] if left else [])
    client.close()
    return forms, "end"


def agree(genuine, ours):
    """Whether two answers are the same. The genuine server keeps its answers to earlier requests
    to itself while it waits for a value, and drops them when it hangs up without a word; when it
    hangs up with bytes unread, what it sent may be lost on the way, half of a packet too."""
    (got, genuine_end), (wanted, ours_end) = genuine, ours
    if genuine_end != ours_end:
        return False
    if genuine_end == "closed" and got and isinstance(got[-1], bytes):
        got = got[:-1]
    return got == wanted if genuine_end == "end" else got == wanted[: len(got)]


def shown(things):
    """Things, one on each line, cut short."""
    return "".join(f"\n            {str(t)[:SHOWN_BYTES * 2]}" for t in things)


def main():
    """Compares until the count is done or ten sequences differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("genuine")
    parser.add_argument("ours")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    numbers = range(args.count) if args.only is None else [args.only]
    differences = replies = 0
    for number in numbers:
        for mark, idle_s in ((b"a", 0.1), (b"b", ANSWER_S)):
            results = []
            for server in (args.genuine, args.ours):
                sequence = Sequence(args.seed, number, mark)
                if sequence.udp:
                    results.append(udp(server, sequence, server == args.genuine))
                else:
                    results.append(tcp(server, sequence, idle_s))
            if agree(*results):
                break
        (genuine, _), (ours, _) = results
        replies += len(genuine)
        if not agree(*results):
            differences += 1
            at = next((i for i, (a, b) in enumerate(zip(genuine, ours)) if a != b), min(len(genuine), len(ours)))
            print(f"FAILED  differential_binary, seed {args.seed} sequence {number}, from answer {at} on")
            transport = "UDP" if sequence.udp else "TCP"
            print(f"        sent over {transport}: {shown(r for round in sequence.rounds for r in [*round, '--'])}")
            for name, (form, end) in zip(("genuine", "ours"), results):
                print(f"        {name}: {shown(form[at : at + 3])}\n            {end}")
            if differences == DIFFERENCES_MAX:
                break
    if differences == 0 and replies > 0:
        print(f"ok      {len(numbers)} random binary conversations are answered as memcached answers them ({replies} answers)")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
