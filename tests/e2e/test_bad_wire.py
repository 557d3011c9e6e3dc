"""TCP over a bad cable: 1 % of the frames lost, 5 % overtaken, some twice, some with a bit turned, in both
directions. Values go both ways and are compared byte for byte, one connection and several; beside it the same over
the kernel's TCP at the server's end.

    BAD_WIRE_MB=1000 scripts/e2e.sh bad_wire --file-seconds 0      each way; default: 4"""

import os
import pathlib
import subprocess

import pytest
from harness import namespaces, processes
from harness.wires import AT, CPUS, V4

MEGABYTES = os.environ.get("BAD_WIRE_MB", "4")
FAULTS = ("10000", "50000", "5000", "1000")
CABLE = pathlib.Path("target/release/examples/bad_wire")
SERVES = {"kernel": "serves on kernel sockets", "worker": "serves over af_packet"}


@pytest.mark.parametrize("tcp", SERVES)
def test_bad_wire(check, namespace, gnomon, undo, scratch, tcp):
    if not CABLE.exists():
        check.runs("the bad cable", *"cargo build -q --release -p driver-shim --example bad_wire".split())
    client, server = namespace("client"), namespace("server")
    cable = processes.Process(CABLE, "left0", "right0", *FAULTS, log=scratch / "cable", stdin=subprocess.PIPE)
    undo.enter_context(cable)
    check("there is a cable", processes.wait_for(10, lambda: "ready" in cable.said()), cable.said())
    for place, device in ((client, "left0"), (server, "right0")):
        namespaces.must("ip", "link", "set", device, "netns", place.name)
    server.no_ipv6("right0")
    client.ip("link set left0 up")
    server.ip("link set right0 up")
    client.client_addresses("left0")
    if tcp == "kernel":
        server.ip(f"addr add {V4}/24 dev right0")
        up = gnomon(server, "-l", V4, "-U", "0", "-m", "256")
    else:
        server.deaf("right0")
        port = ("--port", "net_af_packet0,iface=right0", "--ip", f"{V4}/24", "--cores", CPUS[0])
        up = gnomon(server, *port, "--tcp", "worker", "-m", "256")
    up.gets_to(SERVES[tcp], lambda: answers(client))
    for connections in (1, 4):
        what = f"the {tcp}'s TCP, {connections} connections: {MEGABYTES} MB each way, byte for byte"
        check.counted(*client.argv("timeout", "3600", "tests/e2e/exact.py", AT, str(connections), MEGABYTES, what))
    up.stop()
    cable.stdin.close()
    check("the cable was bad", processes.wait_for(10, lambda: "right0 to left0" in cable.said()))
    for line in cable.said().splitlines():
        check.note(line)


def answers(client):
    """Whether the server answers over TCP."""
    try:
        return client.ask(AT, "version").startswith("VERSION")
    except OSError:
        return False
