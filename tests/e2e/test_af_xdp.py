"""The appliance at one end of a veth cable through DPDK's af_xdp: one queue, one worker."""

import re
import signal

import pytest
from harness import wires
from harness.servers import GNOMON

pytestmark = pytest.mark.needs("af_xdp")


def test_af_xdp(check, wire, gnomon, scratch):
    up = wire("af_xdp", "--metrics", f"unix:{scratch}/metrics.sock")
    server, client = up.server, up.client

    def program():
        """Whether wire0 has an XDP program."""
        return "prog/xdp" in server.must("ip", "-d", "link", "show", "wire0")

    check("an XDP program takes the frames", program())
    wires.all_checks(check, up, scratch / "wire.pcapng")
    wires.own_capture(check, up, scratch / "metrics.sock", scratch)
    up.gnomon.stop()
    check("the interface is the kernel's again", not program())

    # The program of one that was killed is still there, and serves the next.
    again = ("--port", "net_af_xdp0,iface=wire0", "--ip", f"{wires.V4}/24", "--cores", wires.CPUS[0])
    killed = gnomon(server, *again)
    killed.serves("serves again", wires.AT, client)
    killed.send_signal(signal.SIGKILL)
    check("it is killed", killed.ends(10) is not None)
    check("its XDP program stays", program())
    after = gnomon(server, *again)
    after.serves("serves after that", wires.AT, client)
    after.stop()
    check("the interface is the kernel's again after that", not program())

    # Without the right to load the program it says what it takes.
    refused = server.run("setpriv", "--bounding-set=-sys_admin", GNOMON, "serve", *again, timeout=60)
    check("without CAP_SYS_ADMIN it does not start", refused.returncode == 1, refused.stdout)
    check("and says so", re.search("set up a receive queue.*CAP_SYS_ADMIN", refused.stdout), refused.stdout)
