"""TCP over a network of somebody else's making: the client is Debian's kernel in a QEMU guest, and its sch_netem
delays, loses, overtakes, copies and spoils in both directions. Values go both ways and are compared byte for byte;
the server is at the other end of the guest's NIC, first with the kernel's TCP, then with the workers'.

    NETEM_MB=64 scripts/e2e.sh netem --file-seconds 0      each way; default: 4"""

import os
import pathlib

import pytest
from harness import guest as guests
from harness.wires import AT, CPUS, V4

pytestmark = pytest.mark.needs("guest")

MEGABYTES = os.environ.get("NETEM_MB", "4")
FAULTS = "delay 200us reorder 5% loss 1% duplicate 0.5% corrupt 0.1%"
MODULES = "sch_netem ifb act_mirred cls_matchall sch_ingress"

DOES = """
ip addr add 10.77.0.2/24 dev eth0
here /usr/sbin/ethtool -K eth0 gso off gro off tso off
ip link set lo up
ip link set eth0 up
ip link set ifb0 up
here /usr/sbin/tc qdisc add dev eth0 ingress
here /usr/sbin/tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0
for device in eth0 ifb0; do here /usr/sbin/tc qdisc add dev $device root netem {faults}; done
for connections in 1 4; do
  here python3 -B "{exact}" {at} $connections {megabytes} \
    "$(word who)'s TCP, a guest behind sch_netem, $connections connections: {megabytes} MB each way, byte for byte"
done
here /usr/sbin/tc -s qdisc show dev ifb0
"""


def test_netem(check, namespace, gnomon, scratch):
    exact = pathlib.Path("tests/e2e/exact.py").resolve()
    does = DOES.format(faults=FAULTS, exact=exact, at=AT, megabytes=MEGABYTES)
    guest = guests.Guest(check, scratch, MODULES, does)
    server = namespace("server")
    guests.tap(server)
    server.no_ipv6("gtap0")
    server.ip("link set gtap0 up")

    def asks(who):
        """Has the guest ask, and judges what it said."""
        guest.asks(server, who)
        asked = len(guest.says(f"^ok .*{who}'s TCP"))
        check("it was asked twice", asked == 2, f"{asked} times")
        check("netem lost something", guest.says("dropped [1-9]"))
        guest.told()

    server.ip(f"addr add {V4}/24 dev gtap0")
    kernel = gnomon(server, "-l", V4, "-U", "0", "-m", "256")
    kernel.ready("serves on kernel sockets")
    asks("kernel")
    kernel.stop()
    server.ip(f"addr del {V4}/24 dev gtap0")

    server.deaf("gtap0")
    port = ("--port", "net_af_packet0,iface=gtap0", "--ip", f"{V4}/24", "--cores", CPUS[0])
    worker = gnomon(server, *port, "--tcp", "worker", "-m", "256")
    worker.ready("serves over af_packet")
    asks("worker")
    worker.stop()
