"""Random ASCII commands, classic and meta. Differences that are meant (docs/protocol.md) are never
generated.

A CAS id is not known when a command is made: twenty characters stand for it until `filled`.
"""

import base64
import binascii
import re

# Verbs that gnomon does not have, or that reach beyond their own keys: a damaged line that happens to
# spell one proves nothing.
OTHER_VERBS = set(
    b"flush_all verbosity cache_memlimit shutdown slabs lru lru_crawler watch"
    b" misbehave debugtime extstore refresh_certs".split()
)
# What a flush may look like where one is allowed. None to come: in memcached it takes back one
# that was before.
FLUSHES = [(b"flush_all", *rest) for rest in ((), (b"0",), (b"noreply",), (b"0", b"noreply"), (b"x",))]
# None that takes more than 31 bits, where memcached cuts off the upper ones, as gnomon does not.
NUMBERS = b"0 00 1 7 +3 -1 007 2147483646 2147483647 1e3 0x10 1.0 5x x - + ''".split()
# Nothing that expires within a run.
EXPTIMES = b"0 0 0 -1 1000 2592000 2592001 2147483647".split()
# None that an item may have when it is asked whether so much is left.
RECACHES = b"0 -1 500 5000 x".split()
DELTAS = b"0 1 2 9 90 99999 18446744073709551615 18446744073709551616 -1 +3 x".split()
# An id is written in twenty digits, whatever it is.
CAS_WIDTH = 20
# Every flag that some meta command of 1.6.18 has, and some that none has.
META_FLAGS = [bytes([c]) for c in b"bcfhklqstuvPLICDEFJMNORST1\xff"]
# CAS ids of a client's own: none that a server would give.
OWN_IDS = b"0 1000000000000007 1000000000000008 18446744073709551615 x".split()
# Flags of commands that they had not in 1.6.18.
LATER_FLAGS = {b"mg": "CE", b"ms": "sEN", b"md": "xE", b"ma": "E"}
# The default item size limit of both.
LIMIT_BYTES = 1 << 20
LENGTHS = (0, 1, 2, 3, 10, 100, 1000, 5000, 16384, 70_000)
TAME_LENGTHS = (0, 1, 2, 3, 10, 100, 1000, 1000, 5000, 16384)
DATAGRAM_LENGTHS = (0, 1, 2, 3, 10, 100, 1000)
# Longer lines end the connection or do not, as the network cuts them.
LINE_SAFE_BYTES = 2000
DATAGRAM_SAFE_BYTES = 1300
# What a key is made of: no blank, no control character.
KEY_BYTES = bytes(range(0x21, 0x7F)) + bytes(range(0x80, 0x100))
KEY_BYTE = bytes(KEY_BYTES[n % len(KEY_BYTES)] for n in range(256))
ODD_LINES = (
    (b"version", b"version x", b"", b" ", b"x", b"GET a", b"bogus", b"get", b"delete", b"quite", b"ge t", b"g", b"s")
    + (b"statsx", b"versions", b"no\x08", b"\xff\xfe", b"mg", b"mn x", b"gat 0", b"touch", b"incr")
)
WILD_LINES = (b"stats", b"set", b"stats bogus", b"GET / HTTP/1.1", b"stats settings", b"x" * 2000, b"x" * 2040 + b" y")


class Partner:
    """What the genuine server is."""

    # A later release than 1.6.18. It has flags that one has not, and reads lines that make no sense in another
    # way: it is sent none.
    is_newer = False


class Commands:
    """Makes commands on keys that no other conversation has.

    A tame one brings all of its data block, and leaves the connection as it is; one for UDP, which
    must be tame, fits a datagram.
    """

    def __init__(self, rng, prefix, tame=False, udp=False, may_flush=False):
        self.rng, self.prefix, self.tame, self.udp, self.may_flush = rng, prefix, tame, udp, may_flush
        keys = distinct(self.key, 10)
        # Numbers alone are counted: what counting leaves of marks and blanks depends on memcached's
        # buffers. So does what joining leaves of a key's encoding.
        self.numbers, self.encoded, self.keys = keys[:2], keys[2:4], keys[4 : rng.randint(5, 10)]
        # Of lengths that the others do not have.
        self.binary = distinct(lambda: prefix + rng.randbytes(rng.choice((2, 4, 20, 150))), 2)
        self.is_first = True

    def key(self):
        """Begins as no key of another conversation does."""
        length = self.rng.choice((1, 1, 5, 10, 30, 100, 250 - len(self.prefix)))
        return self.prefix + self.rng.randbytes(length).translate(KEY_BYTE)

    def command(self):
        """A command line, and its data block where it has one."""
        first, self.is_first = self.is_first, False
        rng = self.rng
        if self.may_flush and rng.random() < 0.1:
            return b" ".join(rng.choice(FLUSHES)) + b"\r\n"
        verbs = (self.get, self.set, self.delete, self.other, self.join, self.count, self.touch, self.meta)
        tokens, block = rng.choices(verbs, (8, 8, 3, 2, 3, 4, 3, 20))[0]()
        # Where the lengths are wrong, memcached takes the next datagram for the rest.
        damage = 1 / 2 if self.tame and block or Partner.is_newer else rng.random()
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
        mishap = words and (words[0] in OTHER_VERBS or id_as_key or lenient_base64(words) or late_refusal(words))
        mishap = mishap or later_flag(words)
        if mishap or any(map(too_large, words)) or cut_off(words) or obeyed_block(words):
            return b"version\r\n"
        if self.udp and len(line) + len(block) > DATAGRAM_SAFE_BYTES:
            return b"version\r\n"
        if len(line) > LINE_SAFE_BYTES and not (first and line.startswith((b"get ", b"gets "))):
            line = line[:LINE_SAFE_BYTES]
        long_get = line.lstrip().startswith((b"get", b"gat")) and max(map(len, words)) > 250
        if not first and (long_get or words and words[-1].startswith(b"HTTP/")):
            # The genuine server forgets what it owes for the commands before these.
            return b"version\r\n"
        return line + rng.choice((b"\r\n", b"\r\n", b"\r\n", b"\n")) + block

    def get(self):
        rng = self.rng
        count = rng.choice((1, 1, 2, 5)) if self.tame else rng.choices((1, 2, 3, 8, 25, 100), (12, 4, 4, 4, 2, 1))[0]
        return [rng.choice((b"get", b"gets"))] + rng.choices(self.keys, k=count), b""

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
        if self.tame:
            size = rng.choice(DATAGRAM_LENGTHS if self.udp else TAME_LENGTHS)
        else:
            size = rng.choices((rng.choice(LENGTHS), 1_000_000, limit, 1_100_000), (200, 1, 1, 1))[0]
        value = ((b"v" + rng.randbytes(62) + b"\n") * (size // 64 + 1))[:size]
        if self.udp and size > 100:
            # Read as commands after a refusal, it must be few: memcached forgets what stands behind
            # the twentieth of a datagram.
            value = value.replace(b"\n", b"n")
        end = b"\r\n"
        # gnomon refuses a value that fits the limit, but not together with its key, after its block.
        # Of what it takes for a line then, a later release keeps its word where that is `noreply`.
        if not self.tame and not Partner.is_newer and rng.random() < 0.05 and size != LIMIT_BYTES:
            end = rng.choice((b"\n", b"", b"x\r\n", b"xy\r\n", b"\r", b"\n\r\n", b"xyz"))
        return value, value + end

    def cas(self, key):
        """A CAS id: one that is known, one that is lower, or one that is higher."""
        known = unknown_cas(self.keys.index(key)) if key in self.keys else b"1"
        return self.rng.choice((known, known, b"1", b"18446744073709551615", b"0"))

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
            # None of 2^63 and more: memcached then looks for a minus sign behind the value, in memory.
            value = rng.choice((b"0", b"5", b"10", b"99", b"9223372036854775807", b"7 ", b"x", b""))
            return [b"set", key, self.flags(), rng.choice(EXPTIMES), b"%d" % len(value)], value + b"\r\n"
        tokens = [rng.choice((b"incr", b"decr")), key, self.delta()]
        if rng.random() < 0.2:
            tokens.append(b"noreply")
        return (tokens, b"") if rng.random() < 0.7 else ([b"get", key], b"")

    def delta(self):
        """A number, mostly. With a sign before it, it is none to a later release."""
        return self.rng.choice([d for d in DELTAS if not (Partner.is_newer and d.startswith(b"+"))])

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
            # To a later release it is no command with a bare line feed behind it.
            return [b"version" if Partner.is_newer else b"mn"], b""
        if verb == b"me" and Partner.is_newer:
            # It takes base64 for the key itself.
            return [verb, rng.choice(self.keys)], b""
        if verb == b"ma":
            # No T: memcached gives it to the number before, when the new one is longer.
            key, letters = rng.choice(self.numbers), "tckOqvNJDMC"
        elif verb == b"ms":
            key, letters = rng.choice(self.keys + self.encoded + self.binary), "kcOqFTCIM"
        elif verb == b"md":
            key, letters = rng.choice(self.keys + self.encoded + self.binary), "kOqTCI"
        elif verb == b"me":
            key, letters = rng.choice(self.keys + self.encoded + self.binary), ""
        else:
            key, letters = rng.choice(self.keys + self.numbers + self.encoded + self.binary), "kcfhlsOqtuvTNR"
        if key in self.numbers and verb == b"mg":
            letters = "kcflOqtuvT"
        if key in self.binary:
            letters = letters.replace("N", "")
        if Partner.is_newer:
            letters += LATER_FLAGS.get(verb, "")
        flags = [self.meta_flag(verb, key, letter) for letter in letters if rng.random() < 0.35]
        if key in self.binary or verb != b"ms" and rng.random() < 0.2 or key in self.encoded and rng.random() < 0.5:
            key = base64.b64encode(key)
            flags.append(b"b")
        if rng.random() < 0.1:
            flags += rng.sample(META_FLAGS, rng.choice((1, 2) if Partner.is_newer else (1, 2, 12, 20)))
        rng.shuffle(flags)
        if verb == b"ms" and not Partner.is_newer:
            # Later releases than the partner tell the length.
            flags = [flag for flag in flags if flag != b"s"]
        if verb == b"me":
            flags = [flag for flag in flags if flag == b"b"]
        if Partner.is_newer:
            flags = as_newer(verb, flags)
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
            known = rng.choice(OWN_IDS[:4]) if Partner.is_newer and rng.random() < 0.5 else self.cas(key)
            return letter + known
        if letter == b"E":
            return letter + rng.choice(OWN_IDS)
        if letter in b"JD":
            return letter + self.delta()
        if letter == b"M":
            joins = [] if key in self.encoded + self.binary else [b"A", b"P"]
            known = [b"I", b"D", b"+", b"-"] if verb == b"ma" else [b"E", b"R", b"S", *joins]
            return letter + rng.choice(known * 5 + [b"", b"x", b"AA", b"a", b"i"])
        return letter

    def delete(self):
        rng = self.rng
        more = rng.choice(((),) * 6 + ((b"0",), (b"noreply",), (b"0", b"noreply"), (b"1",), (b"0", b"0"), (b"noreply", b"0")))
        if Partner.is_newer and more not in ((b"0",), (b"noreply",)):
            more = ()
        return [b"delete", rng.choice(self.keys), *more], b""

    def other(self):
        if Partner.is_newer:
            return [b"version"], b""
        lines = ODD_LINES if self.tame else (*ODD_LINES, *WILD_LINES, b"set " + self.keys[0])
        return [self.rng.choice(lines)], b""

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
        return tokens


def as_newer(verb, flags):
    """Those that later releases take as gnomon does (docs/protocol.md): they look at the first character of M only
    where there is a mode, take no data block along that follows a flag of 0xff, and answer a quiet `ma` that made a number with nothing."""
    modes = verb in (b"ms", b"ma")
    flags = [flag for flag in flags if flag != b"\xff" and (flag[:1] != b"M" or modes and len(flag) < 3)]
    if verb == b"ma" and any(flag[:1] == b"N" for flag in flags):
        flags = [flag for flag in flags if flag != b"q"]
    return flags


def distinct(make, count):
    """So many things, no two the same."""
    made = {}
    while len(made) < count:
        made[make()] = None
    return list(made)


def unknown_cas(index):
    """What stands for the CAS id with this index until it is known."""
    return b"%d" % index + b"?" * (CAS_WIDTH - len(b"%d" % index))


def filled(data, ids):
    """The data with the CAS ids that a server gave, from the first index on."""
    for index, cas in enumerate(ids):
        data = data.replace(unknown_cas(index), b"%020d" % cas)
    return data


def lenient_base64(words):
    """Whether the key is base64 in memcached's eyes alone: it skips what it does not know."""
    flags = words[2:]
    if not (words[0][:1] == b"m" and len(words[0]) == 2 and any(f.startswith(b"b") for f in flags)):
        return False
    try:
        return base64.b64encode(base64.b64decode(words[1], validate=True)) != words[1]
    except binascii.Error:
        return True


def too_large(word):
    """Whether damage has made a number of which memcached cuts off the upper bits."""
    digits = word.lstrip(b"FTN+-")
    return digits.isdigit() and (1 << 31) - 1 < int(digits) < 1 << 63 and digits != b"4294967295"


def cut_off(words):
    """Whether damage has moved a number to where memcached cuts off its upper bits: flags have 32, an
    exptime 31."""
    if not words or words[0] not in (b"set", b"add", b"replace", b"cas", b"append", b"prepend"):
        return False
    return any(word.isdigit() and int(word) >> bits for word, bits in zip(words[2:4], (32, 31)))


def obeyed_block(words):
    """Whether memcached 1.6.18 refuses a store whose length it knows, and takes the data block for
    commands. gnomon throws it away, as 1.6.45 does."""
    if not words:
        return False
    if words[0] == b"cas" and len(words) == 5:
        # Its last word may be an id that is to be filled in.
        return True
    if words[0] == b"ms":
        length, refused = words[2:3], len(words) > 2 + 17
    elif words[0] in (b"set", b"add", b"replace", b"cas", b"append", b"prepend"):
        flags, exptime, cas = words[2:3], words[3:4], words[5:6] if words[0] == b"cas" else []
        length, refused = words[4:5], any(not re.fullmatch(rb"[+]?[0-9]+", n) for n in flags + cas)
        refused = refused or any(not re.fullmatch(rb"[+-]?[0-9]+", n) for n in exptime)
    else:
        return False
    return bool(length and re.fullmatch(rb"[+]?[0-9]+", length[0]) and (refused or len(words[1]) > 250))


def later_flag(words):
    """Whether a flag is none to memcached 1.6.18, and is one to gnomon."""
    return not Partner.is_newer and words[:1] in ([b"mg"], [b"ms"], [b"md"], [b"ma"]) and any(w[:1] in b"Ex" for w in words[2:])


def late_refusal(words):
    """Whether memcached does what is asked, if only to count a fetch, and then refuses the opaque
    token."""
    return words[0] in (b"mg", b"ma") and any(w[:1] == b"O" and len(w) > 32 for w in words[2:])
