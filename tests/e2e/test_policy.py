"""Who is trusted, who is only allowed, and who is neither: three addresses of one client, at the other end of a veth
cable through DPDK's af_packet."""

import json
import os
import re
import socket

import memc
import pytest
from harness.namespaces import veth_pair
from harness.wires import ADDRESSES, AT, AT6, CPUS, PORTS, V4

TRUSTED, ALLOWED, ALLOWED6, STRANGER = "10.77.0.2", "10.78.0.2", "fd78::2", "10.79.0.2"
ALLOW = ("--allow", "10.77.0.0/24,10.78.0.0/24,fd77::/64,fd78::/64")
REFUSAL = "SERVER_ERROR too large, use TCP"

BY_WORKERS = os.environ.get("GNOMON_TCP", "worker") == "worker"
"""Otherwise TCP is the kernel's, which has no way back to those addresses."""


class Policy:
    """The client with its addresses, and a server with these flags."""

    def __init__(self, check, namespace, gnomon, *flags):
        self.check, self.client, server = check, namespace("client"), namespace("server")
        veth_pair(server, self.client)
        self.client.client_addresses("wire1")
        for address in (f"{ALLOWED}/32", f"{STRANGER}/32", f"{ALLOWED6}/128"):
            self.client.ip(f"addr add {address} dev wire1{' nodad' * (':' in address)}")
        port = ("--port", PORTS["af_packet"], *ADDRESSES, "--cores", ",".join(CPUS))
        self.gnomon = gnomon(server, "--json", *port, *flags)
        limits = " ".join(flag for flag in flags if flag not in ALLOW)
        self.gnomon.serves(f"serves with {limits or 'the default limits'}", AT, self.client)
        for request in ("set big 0 0 5000\r\n" + "7".zfill(5000), "set small 0 0 5\r\nhello"):
            self.client.ask(AT, request)

    def says(self, name, want, source, request, server=AT):
        """Whether the reply begins with that; nothing for no reply."""
        try:
            got = self.client.ask(server, request, over=memc.Udp, source=(source, 0))
        except memc.NoReply:
            got = ""
        self.check(name, got.startswith(want) if want else not got, f"wanted {want!r}, got {got[:200]!r}")

    def over_tcp(self, source):
        """What it is answered over TCP."""
        try:
            with self.client, socket.create_connection((V4, 11211), timeout=3, source_address=(source, 0)) as client:
                client.sendall(b"get small\r\n")
                return client.recv(100).decode().split()[0]
        except TimeoutError:
            return "nothing"

    def served_over_tcp(self, name, source, want):
        if BY_WORKERS:
            got = self.over_tcp(source)
            self.check(name, got == want, got)

    def report(self):
        """The last report."""
        lines = [line for line in self.gnomon.said().splitlines() if line.startswith('{"event":"report"')]
        return json.loads(lines[-1])


@pytest.fixture
def policy(check, namespace, gnomon):
    return lambda *flags: Policy(check, namespace, gnomon, *flags)


def test_the_default_limits(check, policy, slap):
    up = policy(*ALLOW)
    up.says("trusted: a small value", "VALUE small 0 5", TRUSTED, "get small")
    up.says("trusted: a large value", "VALUE big 0 5000", TRUSTED, "get big")
    up.says("allowed: a small value", "VALUE small 0 5", ALLOWED, "get small")
    up.says("allowed: a large value is refused", REFUSAL, ALLOWED, "get big")
    up.says("allowed, IPv6: a small value", "VALUE small 0 5", ALLOWED6, "get small", AT6)
    up.says("allowed, IPv6: a large value is refused", REFUSAL, ALLOWED6, "get big", AT6)
    up.says("allowed: many keys are refused", REFUSAL, ALLOWED, "get small small small small small")
    up.says("a stranger gets no answer", "", STRANGER, "get small")
    load = ("-s", AT, "-U", "-T", "1", "-c", "8", "-t", "2s")
    slap("trusted: memcaslap -U runs clean beside them", up.client, *load, lost="counted")
    up.gnomon.stop()
    report = up.report()
    dropped = dict(report["dropped"])
    check("three replies were refused", report["amplification_refused"] == 3, report)
    strangers = dropped.pop("source_not_allowed")
    limits = [reason for reason in dropped if reason.startswith("rate_") or reason == "amplification"]
    check("the stranger was dropped, and nobody for a limit", strangers == 1 and not limits, report)
    check("the exception path tells what it did", report["ports"][0]["side_door"]["written"] > 0, report)


def test_limits(check, policy):
    # At factor 1 not even the refusal may be sent.
    up = policy(*ALLOW, "--amp-factor", "1", "--rate-limit", "20", "--rate-limit-ping", "10")
    up.says("factor 1: no reply fits", "", ALLOWED, "get big")
    up.says("factor 1: a trusted source does not care", "VALUE big 0 5000", TRUSTED, "get big")
    up.served_over_tcp("allowed: served over TCP", ALLOWED, "VALUE")
    up.served_over_tcp("a stranger is not served over TCP", STRANGER, "nothing")
    # Ten at once, then ten in a second; a hundred in half a second are more than both.
    said = up.client.run(*f"ping -q -c 100 -i 0.005 -W 1 {V4}".split()).stdout
    answered = int(re.search(r"(\d+) received", said)[1])
    check(f"pings are answered at their rate ({answered} of 100)", 10 <= answered < 100)
    up.client.must("ip", "neigh", "flush", "dev", "wire1")
    check("the neighbours still find the server", up.client.waits(AT, 3))
    with up.client:
        flood = memc.Udp(AT, source=(ALLOWED, 0))
    for _ in range(2000):
        flood.send(b"get small\r\n")
    flood.close()
    up.gnomon.stop()
    dropped = up.report()["dropped"]
    check("the reply that did not fit is counted", dropped["amplification"] >= 1, dropped)
    check("pings above the rate are counted", dropped["rate_echo"] > 0, dropped)
    check("requests above the rate are counted", dropped["rate_source"] > 0, dropped)


def test_without_allow(policy):
    """Where none are named, TCP is for everybody."""
    up = policy()
    up.says("without --allow: a stranger gets no answer over UDP", "", STRANGER, "get small")
    up.served_over_tcp("without --allow: a stranger is served over TCP", STRANGER, "VALUE")
    up.gnomon.stop()
