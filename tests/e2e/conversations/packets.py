"""The binary protocol: opcodes, requests as bytes, bytes as responses."""

import struct
from dataclasses import dataclass, field

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


def responses(data):
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
