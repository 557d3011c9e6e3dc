#!/usr/bin/env python3
"""Asks an isolated appliance at 10.77.0.1 and fd77::1 what is its own, and the kernel beside it what is the
kernel's. On TCP port 2222 somebody of the kernel's says hello.

    isolated.py [--after]       after: the appliance has ended, and all is the kernel's
"""

import socket
import subprocess
import sys
import time

PATIENCE = 30
V4, V6 = "10.77.0.1", "fd77::1"


def udp(ip, payload, port=11211):
    """The first datagram of the reply, without its header."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(PATIENCE)
        client.connect((ip, port))
        client.send(b"\0\7\0\0\0\1\0\0" + payload)
        reply = client.recv(2048)
    assert reply[:8] == b"\0\7\0\0\0\1\0\0", reply
    return reply[8:]


def tcp(ip, payload, port=11211):
    """What stands in the reply, as long as one is read."""
    with socket.create_connection((ip, port), timeout=PATIENCE) as client:
        client.sendall(payload)
        return client.recv(2048)


def served():
    """Waits until it serves."""
    deadline = time.monotonic() + 300
    while True:
        try:
            assert udp(V4, b"get nothing\r\n") == b"END\r\n"
            return
        except OSError:
            assert time.monotonic() < deadline, "it does not serve"
            time.sleep(1)


def service():
    for n, ip in enumerate([V4, V6]):
        key = b"isolated%d" % n
        assert udp(ip, b"set %s 7 0 5\r\nvalue\r\n" % key) == b"STORED\r\n"
        want = b"VALUE %s 7 5\r\nvalue\r\nEND\r\n" % key
        assert udp(ip, b"get %s\r\n" % key) == want
        assert tcp(ip, b"get %s\r\n" % key) == want


def pings():
    for ip in V4, V6:
        subprocess.run(["ping", "-q", "-c", "3", "-i", "0.2", "-W", "20", ip], check=True, stdout=subprocess.DEVNULL)


def other_tcp():
    for ip in V4, V6:
        assert tcp(ip, b"?", 2222) == b"hello"


def refused(ip, port):
    try:
        udp(ip, b"get isolated0\r\n", port)
    except ConnectionRefusedError:
        return
    raise AssertionError(f"{ip}: the kernel does not refuse")


def other_udp():
    for ip in V4, V6:
        refused(ip, 9999)


def all_of_it():
    for ip in V4, V6:
        refused(ip, 11211)


def tagged():
    assert udp("10.77.5.1", b"get isolated0\r\n") == b"VALUE isolated0 7 5\r\nvalue\r\nEND\r\n"
    assert tcp("10.77.5.1", b"?", 2222) == b"hello"


CHECKS = {
    "serves": served,
    "gnomon has UDP and TCP to its port, over IPv4 and IPv6": service,
    "the kernel has ping, and so ARP and neighbour discovery": pings,
    "the kernel has TCP to another port": other_tcp,
    "the kernel has UDP to another port": other_udp,
    "both have their own in a VLAN": tagged,
}

if __name__ == "__main__":
    failed = 0
    if "--after" in sys.argv:
        CHECKS = {"the kernel has all again after gnomon's end": all_of_it}
    for name, check in CHECKS.items():
        try:
            check()
            print("ok      isolated:", name, flush=True)
        except Exception as why:  # whatever it is, the next check follows
            failed = 1
            print(f"FAILED  isolated: {name}: {why!r}", flush=True)
    sys.exit(failed)
