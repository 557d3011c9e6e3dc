"""Replies in a form in which only what must be the same is left.

Out of the way go `STAT` lines, the text of `version`, CAS ids, which are numbered in order of
appearance, times, which are rounded, and blanks behind numbers, which memcached adds or not as its
buffers happen to stand. Of a later release than 1.6.18, in which way a line is refused, too: gnomon has the words of
that one.
"""

import re

from conversations import packets
from conversations.ascii import Partner

VALUE = re.compile(rb"VALUE (\S+) (\d+) (\d+)(?: (\d+))?\r\n|(VA) (\d+)( [^\r]*)?\r\n")
NUMBER = re.compile(rb"\d+ *\r\n")
BLANKS_BEHIND_NUMBER = re.compile(rb"(?<=\d) +\Z")
# What is wrong in two ways, each release refuses for what it looks at first.
REFUSALS = (b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR object too large for cache")


class Ids:
    """The CAS ids that one server has given, in order of appearance."""

    def __init__(self):
        self.places = {}

    def place(self, cas):
        """An id's place, from 1 on; 0 is none."""
        return self.places.setdefault(cas, len(self.places) + 1) if cas else 0

    def seen(self):
        """All of them."""
        return list(self.places)


def ascii_form(reply, ids):
    """An ASCII reply as a list of lines and values."""
    parts = []
    at = 0
    while at < len(reply):
        found = VALUE.match(reply, at)
        if found:
            end = found.end() + int(found[3] or found[6]) + 2
            value = reply[found.end() : end]
            if NUMBER.fullmatch(value):
                value = value.strip()
            if found[5]:
                parts.append((b"VA", meta(found[7] or b"", ids), value))
            else:
                parts.append((found[1], found[2], value, ids.place(int(found[4] or 0))))
            at = end
            continue
        end = reply.find(b"\r\n", at)
        end = len(reply) if end < 0 else end + 2
        line = reply[at:end]
        if line.startswith(b"VERSION "):
            line = b"VERSION"
        elif Partner.is_newer and line.startswith(REFUSALS):
            line = b"refused"
        elif line[:2] in (b"HD", b"EN", b"NF", b"NS", b"EX", b"ME"):
            line = meta(line, ids)
        if line[:5] != b"STAT ":
            parts.append(line)
        at = end
    return parts


class Seconds(int):
    """A time that is left. The clocks of two servers take their steps at different moments."""

    def __eq__(self, other):
        return abs(int(self) - int(other)) <= 500

    def __ne__(self, other):
        return not self == other

    __hash__ = None


def meta(line, ids):
    """The words of a meta command's answer."""
    words = []
    for word in line.split(b" "):
        name, digits = word[:1], word[1:].removesuffix(b"\r\n")
        if name == b"c" and digits.isdigit():
            word = (b"c", ids.place(int(digits)))
        elif name == b"t" and digits.isdigit():
            # memcached tells less than nothing left as more than a century.
            seconds = int(digits) if int(digits) < 1 << 31 else 0
            word = (b"t", Seconds(seconds))
        elif name == b"l" and digits.isdigit() or word.startswith((b"la=", b"cls=", b"size=")):
            continue
        elif word.startswith(b"cas="):
            word = (b"cas", ids.place(int(word[4:])))
        elif word.startswith(b"exp="):
            # memcached tells more than 68 years ahead as in the past.
            seconds = -int(word[4:]) % (1 << 32)
            if Partner.is_newer:
                # As in protocol.txt it has no sign.
                seconds = min(seconds, -seconds % (1 << 32))
            word = (b"exp", seconds == 1, Seconds(seconds))
        words.append(word)
    return words


def binary_form(reply, ids, strip_numbers=False):
    """The packets of a binary reply, and what is left behind them."""
    found, left = packets.responses(reply)
    parts = []
    for magic, opcode, key, extras, data_type, status, opaque, cas, body in found:
        cas = ids.place(cas)
        if opcode == packets.STAT and key:
            continue
        if opcode == packets.VERSION and status == 0:
            body = b""
        elif strip_numbers:
            body = BLANKS_BEHIND_NUMBER.sub(b"", body)
        parts.append((magic, opcode, key, extras, data_type, status, opaque.hex(), f"cas {cas}", body))
    return parts + ([left] if left else [])
