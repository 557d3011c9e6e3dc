#!/usr/bin/env python3
"""Writes what memcached answers to binary requests, for dataplane/tests/binary_recorded.rs.

    record_binary.py HOST:PORT >dataplane/tests/binary_recorded.txt

Each case has a connection and keys of its own. A case is its name, what is sent (`>`), what comes
back (`<`, CAS ids numbered in order of appearance) and what has become of the connection (`=`).
"""

import socket
import struct
import sys

import memc
from conversations.normal import Ids
from conversations.packets import *  # the opcodes

IDLE_S = 0.3


def settings(flags=0, exptime=0):
    """The extras of a set."""
    return struct.pack("!II", flags, exptime)


def count(delta, initial, exptime):
    """The extras of an increment."""
    return struct.pack("!QQI", delta, initial, exptime)


def until(exptime):
    """The extras of a touch."""
    return struct.pack("!I", exptime)


def r(opcode, key=b"", extras=b"", value=b"", **more):
    """A request. Its opaque is its own opcode, thrice, and a mark."""
    return Request(opcode, key, extras, value, bytes([opcode, opcode, opcode, 0xA5]), **more)


NONE = 0xFFFFFFFF


def cases():
    """Name and requests of each case."""
    k = b"k"
    stored = r(SET, k, settings(5), b"value")
    number = r(SET, k, settings(7), b"10")
    yield "noop", [r(NOOP)]
    yield "version", [r(VERSION)]
    yield "set and every get", [stored, *(r(op, k) for op in GETS)]
    yield "every get of nothing", [r(op, k) for op in GETS]
    yield "a key of 250 bytes, of any bytes", [r(SET, bytes(range(250)), settings(), b"x"), r(GETK, bytes(range(250)))]
    yield "empty value", [r(SET, k, settings()), r(GET, k), r(APPEND, k), r(GET, k)]
    yield "data type and vbucket are ignored", [
        r(SET, k, settings(5), b"value", data_type=7, vbucket=9), r(GET, k, data_type=3, vbucket=77, cas=99),
    ]
    yield "quiet sets", [r(SETQ, k, settings(1), b"a"), r(ADDQ, b"2" + k, settings(2), b"b"), r(REPLACEQ, k, settings(3), b"c"), r(GET, k)]
    yield "refused sets", [
        stored, r(ADD, k, settings(), b"x"), r(ADDQ, k, settings(), b"x"),
        r(REPLACE, b"no", settings(), b"x"), r(REPLACEQ, b"no", settings(), b"x"),
    ]
    for op, name in ((SET, "set"), (SETQ, "setq"), (ADD, "add"), (ADDQ, "addq"), (REPLACE, "replace"), (REPLACEQ, "replaceq")):
        yield f"{name} with another CAS id", [stored, r(op, k, settings(), b"x", cas=1 << 60), r(op, b"no", settings(), b"x", cas=1 << 60)]
        yield f"{name} without extras", [r(op, k, b"", b"x"), r(NOOP)]
        yield f"{name} with an extras byte too many", [r(op, k, settings() + b"x", b""), r(NOOP)]
        yield f"{name} without a key", [r(op, b"", settings(), b"x"), r(NOOP)]
    yield "append and prepend", [
        stored, r(APPEND, k, b"", b"A"), r(PREPEND, k, b"", b"P"), r(APPENDQ, k, b"", b"A"), r(PREPENDQ, k, b"", b"P"), r(GET, k),
        *(r(op, b"no", b"", b"x") for op in JOINS), r(APPEND, k, b"", b"x", cas=1 << 60), r(APPEND, b"no", b"", b"x", cas=1 << 60),
    ]
    for op, name in ((APPEND, "append"), (PREPENDQ, "prependq")):
        yield f"{name} with extras", [r(op, k, b"x", b"x"), r(NOOP)]
        yield f"{name} without a key", [r(op, b"", b"", b"x"), r(NOOP)]
    yield "delete", [stored, r(DELETE, k, cas=1 << 60), r(DELETEQ, k, cas=1 << 60), r(DELETE, k), r(DELETE, k), r(DELETEQ, k), stored, r(DELETEQ, k), r(GET, k)]
    for name, bad in (("extras", r(DELETE, k, b"1234")), ("a value", r(DELETE, k, b"", b"x")), ("no key", r(DELETE))):
        yield f"delete with {name}", [bad, r(NOOP)]
    yield "increment", [
        r(INCREMENT, k, count(1, 10, NONE)), r(INCREMENT, k, count(1, 10, 0)), r(INCREMENT, k, count(5, 10, 0)), r(DECREMENT, k, count(6, 10, 0)),
        r(DECREMENT, k, count(60, 10, 0)), r(INCREMENTQ, k, count(60, 10, 0)), r(DECREMENTQ, k, count(1, 10, 0)), r(INCREMENT, k, count(1, 10, 0), cas=1 << 60),
        r(INCREMENTQ, b"no", count(1, 1, NONE)), r(DECREMENTQ, b"new", count(1, 77, 0)), r(GET, b"new"), r(GET, k),
    ]
    yield "increment keeps the client flags and wraps", [number, r(INCREMENT, k, count((1 << 64) - 1, 0, 0)), r(GET, k)]
    yield "an initial number of 20 digits", [r(INCREMENT, k, count(1, (1 << 64) - 1, 0)), r(GET, k)]
    yield "increment of no number", [stored, r(INCREMENT, k, count(1, 1, 0)), r(DECREMENTQ, k, count(1, 1, 0)), r(INCREMENT, k, count(1, 1, 0), cas=1 << 60)]
    yield "increment of nothing at all, with another CAS id", [r(SET, k, settings()), r(INCREMENT, k, count(1, 1, 0), cas=1 << 60)]
    for name, bad in (
        ("19 bytes of extras", r(INCREMENT, k, count(1, 1, 0)[:19])), ("21 bytes of extras", r(DECREMENT, k, count(1, 1, 0) + b"x")),
        ("255 bytes of extras", r(INCREMENTQ, k, bytes(255))), ("a value", r(INCREMENT, k, count(1, 1, 0), b"1")), ("no key", r(DECREMENTQ, b"", count(1, 1, 0))),
    ):
        yield f"increment with {name}", [bad, r(NOOP)]
    yield "touch and every gat", [stored, *(r(op, k, until(100)) for op in GATS), r(GET, k)]
    yield "touch and every gat of nothing", [r(op, k, until(100)) for op in GATS]
    yield "touch to a time long ago", [stored, r(TOUCH, k, until(2592001)), r(GET, k)]
    yield "set to a time long ago", [r(SET, k, settings(5, 2592001), b"value"), r(GET, k)]
    yield "an exptime has no sign", [r(SET, k, settings(5, NONE), b"value"), r(GET, k), r(TOUCH, k, until(0x80000000)), r(GAT, k, until(NONE)), r(GET, k)]
    for op, name in zip(GATS, ("touch", "gat", "gatq", "gatk", "gatkq")):
        yield f"{name} without extras", [r(op, k), r(NOOP)]
        yield f"{name} without a key", [r(op, b"", until(1)), r(NOOP)]
    for op, name in zip(GETS, ("get", "getq", "getk", "getkq")):
        yield f"{name} with extras", [r(op, k, b"1234"), r(NOOP)]
        yield f"{name} with a value", [r(op, k, b"", b"x"), r(NOOP)]
        yield f"{name} without a key", [r(op), r(NOOP)]
    yield "flush", [stored, r(FLUSH), r(GET, k), stored, r(FLUSHQ), r(GET, k), stored, r(FLUSH, b"", until(0)), r(GET, k), stored, r(FLUSHQ, b"", until(0)), r(GET, k)]
    yield "flush with a key", [r(FLUSH, k), r(NOOP)]
    yield "flush with two bytes of extras", [r(FLUSH, b"", b"12"), r(NOOP)]
    yield "quit", [r(QUIT), r(NOOP)]
    yield "quitq", [r(QUITQ), r(NOOP)]
    for op, name in ((NOOP, "noop"), (VERSION, "version"), (QUIT, "quit"), (QUITQ, "quitq")):
        yield f"{name} with a key", [r(op, k), r(NOOP)]
        yield f"{name} with extras", [r(op, b"", b"1"), r(NOOP)]
        yield f"{name} with a value", [r(op, b"", b"", b"1"), r(NOOP)]
    yield "statistics that there are not", [r(STAT, b"bogus"), r(NOOP)]
    yield "counts by prefix", [r(STAT, b"detail " + what) for what in (b"on", b"dump", b"off", b"", b"x")]
    yield "statistics with extras", [r(STAT, b"items", b"1"), r(NOOP)]
    yield "SASL", [r(SASL_LIST), r(SASL_AUTH, b"PLAIN"), r(SASL_STEP, b"PLAIN", b"", b"\0u\0p"), r(NOOP)]
    for name, bad in (
        ("list with a key", r(SASL_LIST, k)), ("list with a value", r(SASL_LIST, b"", b"", b"x")), ("without a key", r(SASL_AUTH)), ("with extras", r(SASL_STEP, k, b"x")),
    ):
        yield f"SASL {name}", [bad, r(NOOP)]
    yield "unknown commands", [*(r(op) for op in UNKNOWN), r(0x77, b"", b"", b"x" * 30), r(NOOP)]
    yield "another magic byte, later", [r(NOOP), r(NOOP, magic=0x81)]
    yield "half a header", [r(NOOP), b"\x80\x0a\0\0"]
    yield "a header that announces a key that does not come", [r(GET, k, said={"key": 5, "body": 5})]
    yield "a value that does not come", [r(SET, k, settings(), b"x", said={"body": 12})]
    for op in (GET, SET, DELETE, INCREMENT, APPEND, STAT, 0x77, SASL_AUTH, TOUCH):
        extras = {SET: settings(), INCREMENT: count(1, 1, 0), TOUCH: until(1)}.get(op, b"")
        for body in (0, len(extras) + 1):
            yield f"opcode {op:#04x} longer inside than its body of {body}", [r(op, b"kk", extras, said={"body": body}), r(NOOP)]
    for op in (GET, DELETE, INCREMENT, NOOP, VERSION, QUIT, FLUSH):
        extras = count(1, 1, 0) if op == INCREMENT else b""
        key = k if op in (GET, DELETE, INCREMENT) else b""
        for body in (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            yield f"opcode {op:#04x} with a body of {body:#x}", [r(op, key, extras, said={"body": body}), r(NOOP)]
    for op in (GET, SETQ, DELETE, 0x77):
        extras = settings() if op == SETQ else b""
        yield f"opcode {op:#04x} with a key of 251 bytes", [r(op, b"k" * 251, extras), r(NOOP)]


def ask(server, data):
    """What comes back, and what has become of the connection."""
    _, sockaddr = memc.address(server)
    got = b""
    with socket.create_connection(sockaddr[:2], timeout=IDLE_S) as s:
        s.sendall(data)
        try:
            while more := s.recv(1 << 20):
                got += more
        except TimeoutError:
            return got, "open"
        except ConnectionError:
            pass
    return got, "closed"


def main():
    """Asks for every case and prints it."""
    print("# Written by tests/e2e/record_binary.py from memcached's own answers.")
    for number, (name, requests) in enumerate(cases()):
        data = b""
        for request in requests:
            if isinstance(request, Request):
                # Keys of its own: two bytes in front, but where the length is what matters.
                if 0 < len(request.key) < 200 and not request.said and request.opcode not in (*SASL, STAT):
                    request.key = b"%02x" % number + request.key
                request = request.packet([])
            data += request
        got, end = ask(sys.argv[1], data)
        packets, left = responses(got)
        assert not left, (name, left)
        ids, reply = Ids(), b""
        for magic, opcode, key, extras, data_type, status, opaque, cas, body in packets:
            reply += HEADER.pack(magic, opcode, key, extras, data_type, status, len(body), opaque, ids.place(cas)) + body
        print(f"# {name}\n> {data.hex()}\n< {reply.hex()}\n= {end}")


if __name__ == "__main__":
    main()
