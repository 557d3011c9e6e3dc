"""TCP served by a worker, and at the other end of a cable peers made with scapy: what a kernel's TCP never sends,
over IPv4 and IPv6. Then a flood of SYNs, and clients that never read, beside honest ones.

--whole: a million SYNs and 10,000 clients, and honest ones keep nine tenths of their replies; without it fewer, and a
tenth, because other programs run beside it."""

import pytest
from harness.wires import AT, V4, V6


@pytest.fixture
def size(pytestconfig):
    """How many SYNs, how many clients that never read, and the share that honest ones keep."""
    return ("1000000", 10000, "0.9") if pytestconfig.getoption("whole") else ("300000", 1000, "0.1")


def test_libraries(check, libraries):
    check("the libraries in Python")


def test_peers(check, wire, libraries, size):
    syns, _, share = size
    up = wire("af_packet", "--tcp", "worker")
    peers = up.client.argv(*libraries, "tests/e2e/hostile_tcp.py")
    check.counted(*peers, V6, up.device, "--label", "IPv6: ")
    check.counted(*peers, V4, up.device, "--label", "IPv4: ", "--syns", syns, "--share", share)
    check("a client of the kernel's is served as before", up.client.waits(AT, 5))
    up.gnomon.stop()


def test_unread(check, wire, size):
    _, unread, share = size
    up = wire("af_packet", "--tcp", "worker", "-c", str(unread + 200))
    command = ("tests/e2e/unread.py", V4, str(up.gnomon.pid), "--clients", str(unread), "--share", share)
    check.counted(*up.client.argv(*command))
    up.gnomon.stop()
