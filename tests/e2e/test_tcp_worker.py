"""TCP served by the workers: real client programs and libraries, with the kernel's TCP at the other end of a wire,
over DPDK's net_tap, af_packet, af_xdp and memif. The last two run when they are named: `-k memif`.

--whole: all that kernel sockets are asked, on each: every battery, edges over IPv4 and IPv6, 5,000 random
conversations, 20 contended histories; then policy and drills, by the kernel."""

import sys

import pytest
from harness import wires
from harness.checks import because
from harness.servers import GENUINE, TOOLS
from harness.wires import AT, AT6
from test_clients import ALL, build_crate, runs

A_PART = ("pymemcache", "python_memcached", "pylibmc", "bmemcached", "aiomcache", "libmemcached")
MORE = ("Cache::Memcached::Fast", "Dalli", "crate", "memcached-tool")


def test_libraries(check, libraries):
    check("the libraries in Python")


@pytest.mark.parametrize(
    "kind",
    [
        "net_tap",
        "af_packet",
        pytest.param("af_xdp", marks=[pytest.mark.asked, pytest.mark.needs("af_xdp")]),
        pytest.param("memif", marks=pytest.mark.asked),
    ],
)
def test_tcp_worker(check, wire, memcached, slap, libraries, pytestconfig, kind):
    whole = pytestconfig.getoption("whole")
    up = wire(kind, "--tcp", "worker", "-m", "512")
    client = up.client
    if whole:
        build_crate(check)
    for name in A_PART + MORE if whole else A_PART:
        runs(check, client, ALL[name], libraries, AT, f"{kind}, {name}:")
    tcp = ("-s", AT, "-T", "1", "-c", "16")
    slap(f"{kind}, memcaslap over TCP: no wrong value", client, *tcp, "-t", "3s", lost="counted")
    slap(f"{kind}, memcaslap -B -d 10 over TCP", client, *tcp, "-B", "-t", "2s", "-d", "10", lost="counted")

    # Over both IP versions, large values among them. The driver lets the kernel put IPv4 fragments together before it
    # reads them.
    edges = client.argv("tests/e2e/edges.py")
    without = ("--without", wires.TOO_LONG) if kind == "af_packet" else ()
    check.counted(*edges, AT, AT, "--source", "10.77.0.2", "--label", f"{kind}, IPv4: ", *without)
    check.counted(*edges, AT6, AT6, "--source", "fd77::2", "--label", f"{kind}, IPv6: ")

    if whole or kind == "af_packet":
        # The same as the genuine server says.
        genuine = memcached(client, "-m", "512", "-t", "1")
        count = "5000" if whole else "500"
        check.counted(*client.argv("tests/e2e/differential.py", GENUINE, AT, "--count", count))
        genuine.end()
        # Commands that overlap take effect one at a time.
        linear = (f"{TOOLS}/gnomon-linear", "--server", AT, "--histories", "20" if whole else "3")
        done = client.run("timeout", "500", *linear)
        last = (done.stdout.splitlines() or [""])[-1]
        with check.named(f"{kind}, overlapping commands" + (f": {last}" if done.returncode == 0 else "")):
            if done.returncode != 0:
                because(f"exit status {done.returncode}\n{done.stdout}")
    up.gnomon.stop()
    if kind == "af_packet":
        check.counted(*client.argv("tests/e2e/tcp_served.py", up.server.name))


@pytest.mark.whole
@pytest.mark.parametrize("name, args", [("policy", ()), ("drills", ("-k", "wire"))])
def test_by_the_kernel(check, name, args):
    command = (sys.executable, "-m", "pytest", f"tests/e2e/test_{name}.py", *args)
    check.counted(*command, env={"GNOMON_TCP": "kernel"})
