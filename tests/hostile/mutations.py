#!/usr/bin/env python3
"""Requests of every dialect, mutated by chance: on connections and in datagrams. The chance has a seed.

    mutations.py --server BINARY [--small] [NAME...]
"""

import contextlib
import random
import socket
import struct

from attack import Server, attack, beside, honest, main, memc, must, reset_on_close

SEED = 20


def binary(opcode, extras=b"", key=b"", value=b""):
    """A request of the binary protocol."""
    body = extras + key + value
    return struct.pack("!BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, len(body), 7, 0) + body


GOOD = [
    b"get x:1 x:2 x:3\r\n",
    b"gets x:1\r\n",
    b"gat 10 x:1\r\n",
    b"set x:1 5 0 5\r\nhello\r\n",
    b"add x:2 0 100 4 noreply\r\nabcd\r\n",
    b"append x:1 0 0 3\r\nend\r\n",
    b"cas x:1 0 0 1 77\r\nv\r\n",
    b"incr x:3 1\r\n",
    b"set x:3 0 0 2\r\n10\r\n",
    b"touch x:1 100\r\n",
    b"delete x:2\r\n",
    b"mg x:1 s v t f c O1\r\n",
    b"ms x:4 3 T100 F3 c\r\nabc\r\n",
    b"md x:4 q\r\nmn\r\n",
    b"ma x:3 D2 N0 J1 v\r\n",
    b"mg eDo1 b k v\r\n",
    b"stats items\r\nstats slabs\r\n",
    b"stats sizes\r\n",
    b"version\r\nverbosity 1\r\n",
    binary(0x00, key=b"x:1"),
    binary(0x01, bytes(8), b"x:5", b"value"),
    binary(0x05, struct.pack("!QQI", 1, 5, 0), b"x:6"),
    binary(0x0E, key=b"x:5", value=b"more"),
    binary(0x1D, bytes(4), b"x:5"),
    binary(0x10, key=b"slabs"),
    binary(0x09, key=b"x:1") + binary(0x0A),
]
NUMBERS = [b"0", b"-1", b"1", b"2147483648", b"4294967295", b"18446744073709551615", b"99999999999999999999", b"1e9", b""]


def mutated(chance):
    """One to three good requests, of which some were changed."""
    text = bytearray(b"".join(chance.choices(GOOD, k=chance.randint(1, 3))))
    for _ in range(chance.randint(0, 4)):
        at = chance.randrange(len(text)) if text else 0
        match chance.randrange(7):
            case 0:
                text[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del text[at : at + chance.randint(1, 8)]
            case 2:
                text[at:at] = chance.randbytes(chance.randint(1, 20))
            case 3:
                text[at:at] = chance.choice(NUMBERS)
            case 4:
                del text[at:]
            case 5:
                text[at:at] = b"k" * chance.choice((1, 250, 251, 3000))
            case 6:
                text[at:at] = chance.choice((b"\r\n", b"\n", b"\r", b"\0", b" ", b" noreply"))
    return bytes(text)


@attack("mutated connections")
def connections(size):
    """Each sends some, reads or does not, and ends or resets."""
    chance, count = random.Random(SEED), size.of(600, 18_000)
    with Server(size, "-m", "64") as server, honest(server) as client:
        quiet = client.quiet()
        opened = []
        for n in range(count):
            one = socket.create_connection(server.address(), timeout=10)
            with contextlib.suppress(OSError):
                for _ in range(chance.randint(1, 4)):
                    one.sendall(mutated(chance))
                if n % 3 == 0:
                    one.settimeout(0.002)
                    one.recv(1 << 16)
            if n % 2:
                reset_on_close(one)
            opened.append(one)
            if len(opened) == 50:
                for one in opened:
                    one.close()
                opened.clear()
        for one in opened:
            one.close()
        server.alive()
        return f"{count} connections, seed {SEED}; {beside(quiet, client.seen())}"


@attack("mutated datagrams")
def datagrams(size):
    """With good frame headers and others."""
    chance, count = random.Random(SEED), size.of(20_000, 361_000)
    with Server(size, "-m", "64") as server, honest(server) as client:
        quiet = client.quiet()
        bad = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        bad.connect(server.address("udp"))
        for n in range(count):
            head = memc.HEADER.pack(n & 0xFFFF, 0, 1, 0) if n % 4 else chance.randbytes(chance.randint(0, 10))
            with contextlib.suppress(OSError):
                bad.send(head + mutated(chance)[:1400])
        bad.close()
        server.alive()
        said = beside(quiet, client.seen())
    report = server.report
    must(report["received"] > count // 4, f"only {report['received']} were received")
    return f"{count} datagrams, seed {SEED}; {said}"


if __name__ == "__main__":
    main()
