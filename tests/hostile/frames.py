#!/usr/bin/env python3
"""Raw frames at a DPDK port (net_tap), in a network namespace that is made for it.

    frames.py --server BINARY [--small] [NAME...]
"""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time

from attack import Server, attack, main, memc, must, namespace, until

V4, CLIENT, DEVICE = "10.77.0.1", "10.77.0.2", "ghost0"
INSIDE = "HOSTILE_NAMESPACE"
SEED = 77


def good(macs):
    """Frames as they should be: requests over IPv4 and IPv6, ARP, ping."""
    payload = b"\x12\x34\0\0\0\1\0\0get honest:1\r\n"
    udp = (40_000).to_bytes(2, "big") + (11_211).to_bytes(2, "big") + (8 + len(payload)).to_bytes(2, "big") + b"\0\0" + payload
    v4, v6 = socket.inet_aton(CLIENT) + socket.inet_aton(V4), bytes(15) + b"\2" + bytes(15) + b"\1"
    head = bytearray(b"\x45\0" + (20 + len(udp)).to_bytes(2, "big") + b"\0\1\x40\0\x40\x11\0\0" + v4)
    head[10:12] = checksum(head).to_bytes(2, "big")
    echo = bytearray(b"\x45\0\0\x1c\0\1\0\0\x40\x01\0\0" + v4)
    echo[10:12] = checksum(echo).to_bytes(2, "big")
    arp = b"\0\1\x08\0\6\4\0\1" + macs[6:] + v4[:4] + bytes(6) + v4[4:]
    return [
        macs + b"\x08\0" + bytes(head) + udp,
        macs + b"\x81\0\0\7\x08\0" + bytes(head) + udp,
        macs + b"\x86\xdd\x60\0\0\0" + len(udp).to_bytes(2, "big") + b"\x11\x40" + v6 + udp,
        macs + b"\x08\0" + bytes(echo) + b"\x08\0\xf7\xff\0\0\0\0",
        macs + b"\x08\6" + arp,
        macs + b"\x08\0" + bytes(head)[:9] + b"\6" + bytes(head)[10:] + udp,
    ]


def checksum(data):
    """The Internet checksum (RFC 1071)."""
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF ^ total


def mutated(frame, chance):
    """The frame, changed in one to three ways behind its addresses."""
    frame = bytearray(frame)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(12, max(13, len(frame)))
        match chance.randrange(5):
            case 0:
                frame[at : at + 1] = chance.randbytes(1)
            case 1:
                del frame[at:]
            case 2:
                frame[at:at] = chance.randbytes(chance.randint(1, 60))
            case 3:
                frame += chance.randbytes(chance.randint(1, 1200))
            case 4:
                frame[at : at + 2] = chance.choice((b"\0\0", b"\xff\xff", b"\x7f\xff"))
    return bytes((frame + bytes(14))[: max(14, min(len(frame), 1500))])


@attack("raw frames at net_tap")
def frames(size):
    """Mutated, as fast as the device takes them; an honest client asks beside them."""
    if INSIDE not in os.environ:
        with namespace("tap") as name:
            command = ["ip", "netns", "exec", name, sys.executable, __file__, "--server", size.server]
            command += ["--small"] if size.small else []
            done = subprocess.run(command, env={**os.environ, INSIDE: name}, capture_output=True, text=True, check=False)
            line = done.stdout.strip().splitlines()[-1:] or [done.stderr[-300:]]
            must(done.returncode == 0, "\n".join(done.stdout.strip().splitlines()[-8:]) or done.stderr[-300:])
            return line[0].partition("(")[2].rpartition(";")[0]
    chance, count = random.Random(SEED), size.of(20_000, 461_000)
    port = ("--port", f"net_tap0,iface={DEVICE}", "--ip", f"{V4}/24", "--side-door", "none", "--cores", "0")
    with Server(size, "-m", "64", *port, ports=("-p", "0", "-U", "11211")) as server:
        subprocess.run(["ip", "addr", "add", f"{CLIENT}/24", "dev", DEVICE], check=True)
        subprocess.run(["ip", "link", "set", DEVICE, "up"], check=True)
        client = memc.Udp(f"{V4}:11211")
        until("it answers", lambda: memc.wait(f"{V4}:11211", 1))
        value = b"<1>" * 100
        must(client.ask(memc.set_command(b"honest:1", value)) == b"STORED\r\n", "set")
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        wire.bind((DEVICE, 0))
        with open(f"/sys/class/net/{DEVICE}/address", encoding="ascii") as file:
            station = bytes.fromhex(file.read().strip().replace(":", ""))
        neighbour = subprocess.run(["ip", "neigh", "show", V4], capture_output=True, text=True, check=True).stdout.split()
        macs = bytes.fromhex(neighbour[neighbour.index("lladdr") + 1].replace(":", "")) + station
        plain, lost, took = good(macs), 0, []
        for n in range(count):
            with contextlib.suppress(OSError):
                wire.send(mutated(plain[n % len(plain)], chance))
            if n % 100 == 0:
                begun = time.perf_counter()
                try:
                    told = client.ask(b"get honest:1\r\n", 0.5)
                    must(told == memc.hit(b"honest:1", value), f"WRONG {told[:60]!r}")
                    took.append(time.perf_counter() - begun)
                except memc.NoReply:
                    lost += 1
        server.alive()
        must(len(took) > count // 200, f"{len(took)} of {count // 100} honest requests answered")
        report = server.stop()
        must(len(report["dropped"]) >= 10, f"{report['dropped']}")
        p99 = sorted(took)[int(len(took) * 0.99)] * 1e3
        return f"{count} frames, seed {SEED}, dropped for {len(report['dropped'])} reasons; honest p99 {p99:.1f} ms, {lost} of {count // 100} lost"


if __name__ == "__main__":
    main()
