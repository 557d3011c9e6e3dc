"""`gnomon serve` as anybody starts it: no flags, kernel sockets, loopback."""

import pytest
from harness.servers import GENUINE, HERE


def test_memcached(check, host, memcached):
    """The checks themselves first, against the genuine server: they must be true of it."""
    memcached(host)
    check.counted(*host.argv("tests/e2e/edges.py", GENUINE, GENUINE, "--memcached", "--label", "memcached: "))
    check.counted(*host.argv("tests/e2e/filling.py", "evict", GENUINE, GENUINE, "64", "--label", "memcached: "))


def test_edges(check, host, gnomon):
    server = gnomon(host)
    server.serves("serves without a flag")
    check.counted(*host.argv("tests/e2e/edges.py", HERE, HERE, "--label", "loopback: "))
    server.stop()


def test_beside_memcached(check, host, gnomon, memcached):
    """Both with room for all that is stored: what is evicted when is each server's own. With one thread memcached
    answers datagrams in their order."""
    memcached(host, "-m", "512", "-t", "1")
    server = gnomon(host, "-m", "512")
    server.serves("starts beside memcached")
    check.counted(*host.argv("tests/e2e/stats_parity.py", GENUINE, HERE))
    check.counted(*host.argv("tests/e2e/differential.py", GENUINE, HERE))
    server.stop()


@pytest.mark.parametrize("full, flags", [("evict", ()), ("refuse", ("-M",))])
def test_filling(check, host, gnomon, full, flags):
    server = gnomon(host, "-m", "64", *flags)
    server.serves(" ".join(["starts with", *flags]) if flags else "starts again on the same ports")
    check.counted(*host.argv("tests/e2e/filling.py", full, HERE, HERE, "64"))
    server.stop()
