#!/usr/bin/env python3
"""The same bytes to the genuine memcached and to gnomon over TCP: the answers must be the same.

    differential.py GENUINE OURS [--count N] [--seed S] [--only I]      addresses as HOST:PORT

Each sequence is some commands, valid or slightly not, pipelined and cut at random places, on a
connection and with keys of its own: `--only I` repeats one alone. What may differ is put out of
the way first: `STAT` lines, the text of `version`, and CAS ids, which are numbered in order of
appearance, times, which are rounded, and blanks behind numbers, which memcached adds or not as its
buffers happen to stand. Differences that are meant (docs/protocol.md) are never generated.
Prints `ok NAME` or `FAILED NAME: why`, and exits 1 on any difference.
"""

import argparse
import base64
import binascii
import random
import re
import socket
import sys
import time

import memc

# Verbs that gnomon does not have, or that reach beyond their own keys: a damaged line that happens to
# spell one proves nothing.
OTHER_VERBS = set(
    b"flush_all verbosity cache_memlimit shutdown slabs lru lru_crawler watch"
    b" misbehave debugtime extstore refresh_certs".split()
)
# None that takes more than 31 bits, where memcached cuts off the upper ones, as gnomon does not.
NUMBERS = b"0 00 1 7 +3 -1 007 2147483646 2147483647 1e3 0x10 1.0 5x x - + ''".split()
# Nothing that expires within a run.
EXPTIMES = b"0 0 0 -1 1000 2592000 2592001 2147483647".split()
# None that an item may have when it is asked whether so much is left.
RECACHES = b"0 -1 500 5000 x".split()
DELTAS = b"0 1 2 9 90 99999 18446744073709551615 18446744073709551616 -1 +3 x".split()
# An id that is found out before a conversation, written as every id is: in twenty digits.
CAS_WIDTH = 20
# Every flag that some meta command has, and some that none has.
META_FLAGS = [bytes([c]) for c in b"bcfhklqstuvPLICDEFJMNORST1x\xff"]
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
        # Numbers alone are counted: what counting leaves of marks and blanks depends on memcached's
        # buffers. So does what joining leaves of a key's encoding.
        self.numbers = [self.key() for _ in range(2)]
        self.encoded = [self.key() for _ in range(2)]
        self.binary = [self.prefix + self.rng.randbytes(self.rng.choice((1, 4, 20, 150))) for _ in range(2)]
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
        verbs = (self.get, self.set, self.delete, self.other, self.join, self.count, self.touch, self.meta)
        tokens, block = rng.choices(verbs, (8, 8, 3, 2, 3, 4, 3, 20))[0]()
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
        id_as_key = b"??" in b"".join(words[1:2])
        if words and (words[0] in OTHER_VERBS or id_as_key or lenient_base64(words) or late_refusal(words)):
            return b"version\r\n"
        if len(line) > LINE_SAFE_BYTES and (self.commands or not line.startswith((b"get ", b"gets "))):
            line = line[:LINE_SAFE_BYTES]
        long_get = line.lstrip().startswith((b"get", b"gat")) and max(map(len, words)) > 250
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
        verb = rng.choices((b"set", b"add", b"replace", b"cas"), (8, 2, 2, 2))[0]
        # Others of that size find out at different times whether they store, and whether they may.
        value, block = self.block(LIMIT_BYTES if verb == b"set" else 1_000_000)
        tokens = [verb, rng.choice(self.keys + self.encoded), self.flags(), rng.choice(EXPTIMES), b"%d" % len(value)]
        if verb == b"cas":
            tokens[1] = rng.choice(self.keys)
            tokens.append(self.cas(tokens[1]))
        if rng.random() < 0.2:
            tokens.append(b"noreply")
        return tokens, block

    def flags(self):
        return self.rng.choice((b"0", b"5", b"65535", b"4294967295"))

    def block(self, limit=1_000_000):
        """A value that is no number, and the block to send."""
        rng = self.rng
        size = rng.choices((rng.choice(LENGTHS), 1_000_000, limit, 1_100_000), (200, 1, 1, 1))[0]
        value = ((b"v" + rng.randbytes(62) + b"\n") * (size // 64 + 1))[:size]
        end = b"\r\n"
        # gnomon refuses a value that fits the limit, but not together with its key, after its block.
        if rng.random() < 0.05 and size != LIMIT_BYTES:
            end = rng.choice((b"\n", b"", b"x\r\n", b"xy\r\n", b"\r", b"\n\r\n", b"xyz"))
        return value, value + end

    def cas(self, key):
        """A CAS id: that of the item before the conversation, one that is lower, or one that is higher."""
        known = self.unknown_cas(self.keys.index(key)) if key in self.keys else b"1"
        return self.rng.choice((known, known, b"1", b"18446744073709551615", b"0"))

    @staticmethod
    def unknown_cas(index):
        """What stands for the CAS id of the key with this index until it is known."""
        return b"%d" % index + b"?" * (CAS_WIDTH - len(b"%d" % index))

    def join(self):
        rng = self.rng
        value, block = self.block()
        # What memcached does with a value that would grow too large depends on its header.
        if len(value) > 70_000:
            value, block = b"v", b"v\r\n"
        tokens = [rng.choice((b"append", b"prepend")), rng.choice(self.keys), self.flags(), b"0", b"%d" % len(value)]
        if rng.random() < 0.2:
            tokens.append(b"noreply")
        return tokens, block

    def count(self):
        rng = self.rng
        key = rng.choice(self.numbers)
        if rng.random() < 0.4:
            value = rng.choice((b"0", b"5", b"10", b"99", b"18446744073709551615", b"7 ", b"x", b""))
            return [b"set", key, self.flags(), rng.choice(EXPTIMES), b"%d" % len(value)], value + b"\r\n"
        tokens = [rng.choice((b"incr", b"decr")), key, rng.choice(DELTAS)]
        if rng.random() < 0.2:
            tokens.append(b"noreply")
        return (tokens, b"") if rng.random() < 0.7 else ([b"get", key], b"")

    def touch(self):
        rng = self.rng
        keys = [rng.choice(self.keys + self.numbers) for _ in range(rng.choice((1, 1, 2, 5)))]
        exptime = rng.choice(EXPTIMES)
        if rng.random() < 0.5:
            return [b"touch", keys[0], exptime] + ([b"noreply"] if rng.random() < 0.2 else []), b""
        return [rng.choice((b"gat", b"gats")), exptime, *keys], b""

    def meta(self):
        """A meta command on a key of a kind that it may be compared on."""
        rng = self.rng
        verb = rng.choices((b"mg", b"ms", b"md", b"ma", b"me", b"mn"), (8, 8, 4, 4, 1, 1))[0]
        if verb == b"mn":
            return [b"mn"], b""
        if verb == b"ma":
            # No T: memcached gives it to the number before, when the new one is longer.
            key, letters = rng.choice(self.numbers), "tckOqvNJDMC"
        elif verb == b"ms":
            key, letters = rng.choice(self.keys + self.encoded + self.binary), "kcOqFTCIM"
        elif verb == b"md":
            key, letters = rng.choice(self.keys + self.encoded + self.binary), "kOqTCI"
        else:
            key, letters = rng.choice(self.keys + self.numbers + self.encoded + self.binary), "kcfhlsOqtuvTNR"
        if key in self.numbers and verb == b"mg":
            letters = "kcflOqtuvT"
        if key in self.binary:
            letters = letters.replace("N", "")
        flags = [self.meta_flag(verb, key, letter) for letter in letters if rng.random() < 0.35]
        if key in self.binary or verb != b"ms" and rng.random() < 0.2 or key in self.encoded and rng.random() < 0.5:
            key = base64.b64encode(key)
            flags.append(b"b")
        if rng.random() < 0.1:
            flags += rng.sample(META_FLAGS, rng.choice((1, 2, 12, 20)))
        rng.shuffle(flags)
        if verb == b"me":
            flags = [flag for flag in flags if flag == b"b"]
        if len(key) > 250:
            key = key[:249]
        if verb != b"ms":
            return [verb, key, *flags], b""
        value, block = self.block()
        joins = b"MA" in flags or b"MP" in flags
        if joins and len(value) > 70_000:
            value, block = b"v", b"v\r\n"
        return [verb, key, b"%d" % len(value), *flags], block

    def meta_flag(self, verb, key, letter):
        """A flag with its argument, which mostly is one."""
        rng = self.rng
        letter = letter.encode()
        if letter in b"TN":
            return letter + rng.choice(EXPTIMES + [b"x", b""])
        if letter == b"R":
            return letter + rng.choice(RECACHES)
        if letter == b"O":
            return letter + b"opaque" * rng.choice((0, 1, 1, 5, 6))
        if letter == b"F":
            return letter + rng.choice((self.flags(), b"x", b"-1", b""))
        if letter == b"C":
            return letter + self.cas(key)
        if letter in b"JD":
            return letter + rng.choice(DELTAS)
        if letter == b"M":
            joins = [] if key in self.encoded + self.binary else [b"A", b"P"]
            known = [b"I", b"D", b"+", b"-"] if verb == b"ma" else [b"E", b"R", b"S", *joins]
            return letter + rng.choice(known * 5 + [b"", b"x", b"AA", b"a", b"i"])
        return letter

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

    def cuts(self):
        """Where to cut the data."""
        rng = self.rng
        return sorted(rng.randrange(len(self.data) + 1) for _ in range(rng.choice((0, 0, 1, 3, 8))))

    def pieces(self, cuts, ids):
        """The data, cut, with the CAS ids that a server gave the keys."""
        data = self.data
        for index, cas in enumerate(ids):
            data = data.replace(self.unknown_cas(index), cas)
        for start, end in zip([0, *cuts], [*cuts, len(data)]):
            for at in range(start, end, 65536):
                yield data[at : min(end, at + 65536)]


def lenient_base64(words):
    """Whether the key is base64 in memcached's eyes alone: it skips what it does not know."""
    flags = words[2:]
    if not (words[0][:1] == b"m" and len(words[0]) == 2 and any(f.startswith(b"b") for f in flags)):
        return False
    try:
        return base64.b64encode(base64.b64decode(words[1], validate=True)) != words[1]
    except binascii.Error:
        return True


def late_refusal(words):
    """Whether memcached does what is asked, and then refuses the opaque token."""
    late = words[0] in (b"mg", b"ma") and any(w[:1] == b"O" and len(w) > 32 for w in words[2:])
    return late and (words[0] == b"ma" or any(w[:1] in (b"T", b"N", b"R") for w in words[2:]))


def known_ids(server, sequence):
    """Stores something under each plain key, and returns the CAS ids."""
    sets = b"".join(memc.set_command(key, b"before") for key in sequence.keys)
    got, _ = converse(server, [sets + b"gets " + b" ".join(sequence.keys) + SENTINEL], ANSWER_S)
    ids = dict(re.findall(rb"VALUE (\S+) \d+ 6 (\d+)\r\n", got))
    return [ids.get(key, b"1").zfill(CAS_WIDTH) for key in sequence.keys]


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

    VALUE = re.compile(rb"VALUE (\S+) (\d+) (\d+)(?: (\d+))?\r\n|(VA) (\d+)( [^\r]*)?\r\n")
    NUMBER = re.compile(rb"\d+ *\r\n")

    def __init__(self):
        self.ids = {}

    def cas(self, text):
        """An id's place in order of appearance; none is none."""
        return None if text in (None, b"0") else self.ids.setdefault(text, len(self.ids))

    def form(self, reply):
        """The reply as a list of lines and values."""
        parts = []
        at = 0
        while at < len(reply):
            found = self.VALUE.match(reply, at)
            if found:
                end = found.end() + int(found[3] or found[6]) + 2
                value = reply[found.end() : end]
                if self.NUMBER.fullmatch(value):
                    value = value.strip()
                if found[5]:
                    parts.append((b"VA", self.meta(found[7] or b""), value))
                else:
                    parts.append((found[1], found[2], value, self.cas(found[4])))
                at = end
                continue
            end = reply.find(b"\r\n", at)
            end = len(reply) if end < 0 else end + 2
            line = reply[at:end]
            if line.startswith(b"VERSION "):
                line = b"VERSION"
            elif line[:2] in (b"HD", b"EN", b"NF", b"NS", b"EX", b"ME"):
                line = self.meta(line)
            if line[:5] != b"STAT ":
                parts.append(line)
            at = end
        return parts

    def meta(self, line):
        """The words of a meta command's answer."""
        words = []
        for word in line.split(b" "):
            name, digits = word[:1], word[1:].removesuffix(b"\r\n")
            if name == b"c" and digits.isdigit():
                word = (b"c", self.cas(digits))
            elif name == b"t" and digits.isdigit():
                # memcached tells less than nothing left as more than a century.
                seconds = int(digits) if int(digits) < 1 << 31 else 0
                word = (b"t", (seconds + 500) // 1000)
            elif name == b"l" and digits.isdigit() or word.startswith((b"la=", b"cls=", b"size=")):
                continue
            elif word.startswith(b"cas="):
                word = (b"cas", self.cas(word[4:]))
            elif word.startswith(b"exp=-"):
                word = (b"exp", int(word[5:]) == 1, (int(word[5:]) + 500) // 1000)
            words.append(word)
        return words


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
    servers = (args.genuine, args.ours)
    for server in servers:
        converse(server, [memc.set_command(b"sentinel", b"here") + SENTINEL], ANSWER_S)
    differences = 0
    replies = 0
    for number in numbers:
        for mark, idle_s in ((b"a", 0.1), (b"b", 10.0)):
            sequence = Sequence(args.seed, number, mark)
            cuts = sequence.cuts()
            ids = [known_ids(server, sequence) for server in servers]
            answers = [converse(server, list(sequence.pieces(cuts, i)), idle_s) for server, i in zip(servers, ids)]
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
