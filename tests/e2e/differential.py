#!/usr/bin/env python3
"""The same bytes to the genuine memcached and to gnomon over TCP: the answers must be the same.

    differential.py GENUINE OURS [--count N] [--seed S] [--only I]      addresses as HOST:PORT

Each sequence is some commands, valid or slightly not, pipelined and cut at random places, on a
connection and with keys of its own: `--only I` repeats one alone. What may differ is put out of
the way first: `STAT` lines, the text of `version`, and CAS ids, which are numbered in order of
appearance. Differences that are meant (docs/protocol.md) are never generated.
Prints `ok NAME` or `FAILED NAME: why`, and exits 1 on any difference.
"""

import argparse
import random
import re
import socket
import sys
import time

import memc

# Verbs that gnomon does not have: a damaged line that happens to spell one proves nothing.
OTHER_VERBS = set(
    b"add replace append prepend cas gat gats incr decr touch flush_all verbosity cache_memlimit shutdown slabs lru"
    b" lru_crawler watch mg ms md ma me mn misbehave debugtime extstore refresh_certs".split()
)
# None that takes more than 31 bits, where memcached cuts off the upper ones, as gnomon does not.
NUMBERS = b"0 00 1 7 +3 -1 007 2147483646 2147483647 1e3 0x10 1.0 5x x - + ''".split()
# Nothing that expires within a run.
EXPTIMES = b"0 0 0 -1 1000 2592000 2592001 2147483647".split()
# The default item size limit of both.
LIMIT_BYTES = 1 << 20
LENGTHS = (0, 1, 2, 3, 10, 100, 1000, 5000, 16384, 70_000)
# Stored before the first sequence, asked for at the end of each.
SENTINEL = b"\r\nget sentinel\r\n"
SENTINEL_ANSWER = memc.hit(b"sentinel", b"here")
ANSWER_S = 20.0
DIFFERENCES_MAX = 10
SHOWN_BYTES = 120
# Longer lines end the connection or do not, as the network cuts them.
LINE_SAFE_BYTES = 2000


class Sequence:
    """One conversation, made from nothing but a seed. `mark` keeps the keys of a second try apart."""

    def __init__(self, seed, number, mark):
        self.rng = random.Random(f"{seed}/{number}")
        self.prefix = b"%d%s" % (number, mark)
        self.keys = [self.key() for _ in range(self.rng.randint(1, 6))]
        self.commands = []
        for _ in range(self.rng.randint(1, 12)):
            self.commands.append(self.command())
        # Nothing follows `quit`: with bytes unread the genuine server resets the connection, and
        # answers on their way are lost.
        self.commands.append(b"quit\r\n" if self.rng.random() < 0.1 else SENTINEL)
        self.data = b"".join(self.commands)

    def key(self):
        """A key that no other sequence has."""
        rng = self.rng
        length = rng.choice((1, 1, 5, 10, 30, 100, 250 - len(self.prefix)))
        text = bytes(rng.choice((rng.randrange(0x21, 0x7F), rng.randrange(0x80, 0x100))) for _ in range(length))
        return self.prefix + text

    def command(self):
        """A command line, and its data block where it has one."""
        rng = self.rng
        verb = rng.choices((self.get, self.set, self.delete, self.other), (8, 8, 3, 2))[0]
        tokens, block = verb()
        damage = rng.random()
        if damage < 0.25:
            tokens = self.damaged(tokens)
        line = b" ".join(tokens)
        if damage > 0.9:
            line = rng.choice((b" ", b"  ", b"")) + line.replace(b" ", b" " * rng.randint(1, 3)) + b" " * rng.randint(0, 2)
        elif damage > 0.87 and line:
            at = rng.randrange(len(line))
            # Not NUL: memcached ends the line there. No tab: memcached allows it around numbers.
            line = line[:at] + bytes([rng.choice((32, 1, 127, rng.randrange(0x21, 0x100)))]) + line[at + 1 :]
        words = line.split()
        if words and words[0] in OTHER_VERBS:
            return b"version\r\n"
        if len(line) > LINE_SAFE_BYTES and (self.commands or not line.startswith((b"get ", b"gets "))):
            line = line[:LINE_SAFE_BYTES]
        long_get = line.lstrip().startswith(b"get") and max(map(len, words)) > 250
        if self.commands and (long_get or words and words[-1].startswith(b"HTTP/")):
            # The genuine server forgets what it owes for the commands before these.
            return b"version\r\n"
        return line + rng.choice((b"\r\n", b"\r\n", b"\r\n", b"\n")) + block

    def get(self):
        rng = self.rng
        count = rng.choice((1, 1, 1, 2, 3, 8, 25, 100))
        return [rng.choice((b"get", b"gets"))] + [rng.choice(self.keys) for _ in range(count)], b""

    def set(self):
        rng = self.rng
        size = rng.choices((rng.choice(LENGTHS), 1_000_000, LIMIT_BYTES, 1_100_000), (200, 1, 1, 1))[0]
        value = ((rng.randbytes(63) + b"\n") * (size // 64 + 1))[:size]
        flags = rng.choice((b"0", b"5", b"65535", b"4294967295"))
        tokens = [b"set", rng.choice(self.keys), flags, rng.choice(EXPTIMES), b"%d" % size]
        if rng.random() < 0.2:
            tokens.append(b"noreply")
        end = b"\r\n"
        # gnomon refuses a value that fits the limit, but not together with its key, after its block.
        if rng.random() < 0.05 and size != LIMIT_BYTES:
            end = rng.choice((b"\n", b"", b"x\r\n", b"xy\r\n", b"\r", b"\n\r\n", b"xyz"))
        return tokens, value + end

    def delete(self):
        rng = self.rng
        more = rng.choice(((),) * 6 + ((b"0",), (b"noreply",), (b"0", b"noreply"), (b"1",), (b"0", b"0"), (b"noreply", b"0")))
        return [b"delete", rng.choice(self.keys), *more], b""

    def other(self):
        rng = self.rng
        return [
            rng.choice(
                (b"version", b"version x", b"stats", b"", b" ", b"x", b"GET a", b"bogus", b"get", b"set", b"delete")
                + (b"quite", b"stats bogus", b"GET / HTTP/1.1", b"ge t", b"g", b"s", b"statsx", b"versions", b"no\x08")
                + (b"set " + self.keys[0], b"stats settings", b"\xff\xfe", b"x" * 2000, b"x" * 2040 + b" y")
            )
        ], b""

    def damaged(self, tokens):
        """Tokens missing, doubled, moved, exchanged, too long."""
        rng = self.rng
        tokens = list(tokens)
        at = rng.randrange(len(tokens))
        kind = rng.randrange(7)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, tokens[at])
        elif kind == 2 and len(tokens) > 2:
            tokens[rng.randrange(2, len(tokens))] = rng.choice(NUMBERS)
        elif kind == 3:
            tokens.append(rng.choice((b"noreply", b"0", b"x")))
        elif kind == 4 and len(tokens) > 1:
            tokens[1] = (tokens[1] + b"k" * 251)[: rng.choice((250, 251, 252, 400))]
        elif kind == 5:
            tokens[0] = tokens[0].upper()
        else:
            rng.shuffle(tokens)
        if tokens[0:1] == [b"set"] and tokens[3:4] == [b"4294967295"]:
            tokens[3] = b"0"
        return tokens

    def pieces(self):
        """The data, cut anywhere."""
        rng = self.rng
        cuts = sorted(rng.randrange(len(self.data) + 1) for _ in range(rng.choice((0, 0, 1, 3, 8))))
        for start, end in zip([0, *cuts], [*cuts, len(self.data)]):
            for at in range(start, end, 65536):
                yield self.data[at : min(end, at + 65536)]


def waiting(s):
    """What has come so far."""
    got = b""
    s.setblocking(False)
    try:
        while more := s.recv(1 << 20):
            got += more
    except (BlockingIOError, ConnectionError):
        pass
    return got


def converse(server, pieces, idle_s):
    """Sends the pieces and returns all that came back, and whether that is the end of it: the
    sentinel was answered or the server hung up. It is not where the sentinel went into a data
    block: then nothing came for `idle_s`.
    """
    family, sockaddr = memc.address(server)
    got = b""
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.connect(sockaddr)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                s.settimeout(ANSWER_S)
                s.sendall(piece)
                if len(pieces) > 1:
                    time.sleep(0.0003)
                got += waiting(s)
        except ConnectionError:
            # The server hung up: on `quit`, or on what it cannot follow.
            pass
        s.settimeout(idle_s)
        try:
            while not got.endswith(SENTINEL_ANSWER) and (more := s.recv(1 << 20)):
                got += more
        except TimeoutError:
            return got, False
        except ConnectionError:
            pass
    return got, True


def agree(genuine, ours):
    """Whether two answers are the same. The genuine server keeps its answers to earlier commands
    to itself while it waits for a data block."""
    (got, genuine_ended), (wanted, ours_ended) = genuine, ours
    if genuine_ended != ours_ended:
        return False
    return got == wanted if genuine_ended else got == wanted[: len(got)]


def shown(commands):
    """Commands, data blocks cut short."""
    return "".join(f"\n            {c[:SHOWN_BYTES]!r}{f' ({len(c)} bytes)' if len(c) > SHOWN_BYTES else ''}" for c in commands)


class Normal:
    """Puts out of the way what may differ between two servers."""

    VALUE = re.compile(rb"VALUE (\S+) (\d+) (\d+)(?: (\d+))?\r\n")

    def __init__(self):
        self.cas = {}

    def form(self, reply):
        """The reply as a list of lines and values."""
        parts = []
        at = 0
        while at < len(reply):
            found = self.VALUE.match(reply, at)
            if found:
                end = found.end() + int(found[3]) + 2
                cas = self.cas.setdefault(found[4], len(self.cas)) if found[4] else None
                parts.append((found[1], found[2], reply[found.end() : end], cas))
                at = end
                continue
            end = reply.find(b"\r\n", at)
            end = len(reply) if end < 0 else end + 2
            line = reply[at:end]
            if line.startswith(b"VERSION "):
                line = b"VERSION"
            if not line.startswith(b"STAT "):
                parts.append(line)
            at = end
        return parts


def main():
    """Compares until the count is done or ten sequences differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("genuine")
    parser.add_argument("ours")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    numbers = range(args.count) if args.only is None else [args.only]
    servers = (args.genuine, args.ours)
    for server in servers:
        converse(server, [memc.set_command(b"sentinel", b"here") + SENTINEL], ANSWER_S)
    differences = 0
    replies = 0
    for number in numbers:
        for mark, idle_s in ((b"a", 0.1), (b"b", 2.0)):
            sequence = Sequence(args.seed, number, mark)
            pieces = list(sequence.pieces())
            answers = [converse(server, pieces, idle_s) for server in servers]
            answers = [(Normal().form(got), ended) for got, ended in answers]
            if agree(*answers):
                break
        (genuine, _), (ours, _) = answers
        replies += len(genuine)
        if not agree(*answers):
            differences += 1
            at = next((i for i, (a, b) in enumerate(zip(genuine, ours)) if a != b), min(len(genuine), len(ours)))
            print(f"FAILED  differential, seed {args.seed} sequence {number}, from answer {at} on")
            print(f"        sent: {shown(sequence.commands)}")
            for name, (form, ended) in zip(("genuine", "ours"), answers):
                print(f"        {name}: {shown(map(repr, form[at : at + 3]))}\n            {'end' if ended else 'waits'}")
            if differences == DIFFERENCES_MAX:
                break
    if differences == 0 and replies > 0:
        print(f"ok      {len(numbers)} random conversations are answered as memcached answers them ({replies} answers)")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
