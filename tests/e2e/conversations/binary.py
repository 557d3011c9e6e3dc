"""Random binary requests. Differences that are meant (docs/protocol.md) are never generated."""

import struct

from conversations.packets import COUNTS, DELETES, GATS, GETS, JOINS, SASL, SETS, UNKNOWN
from conversations.packets import FLUSH, FLUSHQ, GETK, NOOP, QUIT, QUITQ, STAT, VERSION, Request

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
# A delayed flush never comes within a run.
FLUSH_DELAYED = struct.pack("!I", 1_000_000)
FLUSH_NOW = (b"", bytes(4))


class Requests:
    """Makes requests on the keys given. The first has short texts, numbers most of them, the others
    anything; `unjoined` ones are not appended to. `udp` ones fit a datagram; tame ones leave the
    connection as it is. Whoever sends says so before each burst (`begin_burst`).
    """

    def __init__(self, rng, keys, udp=False, tame=False, may_flush=False, unjoined=()):
        self.rng, self.keys, self.udp, self.tame = rng, keys, udp, tame
        self.joined = [key for key in keys if key not in unjoined]
        # Not both kinds, and ASCII has but one: a flush to come brings back what one before it has
        # flushed, in memcached.
        self.flushes = rng.choice((FLUSH_NOW, FLUSH_NOW if tame else (FLUSH_DELAYED,)))
        self.may_flush, self.may_damage = may_flush, not tame
        self.is_first = True
        self.number_fetched = False

    def begin_burst(self):
        """All requests before have been answered."""
        self.number_fetched = False

    def value(self, key, kind):
        rng = self.rng
        if key == self.keys[0]:
            return rng.choice(JOINED if kind is JOINS else TEXTS)
        size = rng.choice(LENGTHS)
        if self.udp:
            size = min(size, 1000)
        elif not self.tame and rng.random() < 0.01:
            size = LIMIT_BYTES + rng.choice((-400, -310, -70, -59, -58, -57, 0, 1, 1000))
        return (rng.randbytes(64) * (size // 64 + 1))[:size]

    def request(self):
        """One request."""
        rng = self.rng
        kind = rng.choices(
            (GETS, GATS, SETS, JOINS, DELETES, COUNTS, (NOOP, VERSION), (FLUSH, FLUSHQ), (STAT,), SASL, UNKNOWN, (QUIT, QUITQ)),
            (10, 5, 12, 5, 4, 8, 2, self.may_flush, 0 if self.udp else 0.5, 0.5, 0.5, 0 if self.tame else 0.2),
        )[0]
        opcode = rng.choice(kind)
        made = Request(opcode, opaque=rng.randbytes(4))
        if kind in (GETS, GATS, SETS, DELETES):
            made.key = rng.choice(self.keys)
        exptime = struct.pack("!I", rng.choice(EXPTIMES))
        if kind is COUNTS:
            # The genuine server fills a number up with blanks or not, as the answer to an earlier
            # get of it has left or has not.
            made.key = self.keys[0]
            if self.number_fetched:
                made.opcode, kind = GETK, GETS
        self.number_fetched |= kind in (GETS, GATS) and made.key == self.keys[0] and not self.udp
        if kind is GATS:
            made.extras = exptime
        elif kind is SETS:
            made.extras = struct.pack("!I", rng.choice((0, 5, 0xFFFFFFFF))) + exptime
            made.value = self.value(made.key, kind)
        elif kind is JOINS:
            made.key = rng.choice(self.joined)
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
        if self.may_damage and rng.random() < 0.04:
            self.damage(made)
            self.may_damage = False
        self.is_first = False
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
        elif kind == 6 and not self.is_first and not self.udp:
            # Not in the first: its first byte tells the dialect.
            made.magic = rng.choice((0x00, 0x7F, 0x81, 0xFF))
        else:
            made.opcode, made.key, made.extras, made.value = NOOP, b"k", b"", b""
