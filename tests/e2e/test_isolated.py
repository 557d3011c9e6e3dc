"""Isolated mode: in a QEMU guest, whose kernel has the classifier that DPDK's net_tap needs for it, gnomon takes the
service's frames from an interface that stays the kernel's, and the kernel has all others."""

import pathlib

import pytest
from harness import guest as guests
from harness.servers import GNOMON
from harness.wires import V4, V6

pytestmark = pytest.mark.needs("guest")

MODULES = "veth 8021q tun sch_ingress sch_multiq cls_flower act_mirred act_skbedit act_gact"

ASKS = pathlib.Path("tests/e2e/isolated.py")

DOES = f"""
mount -t tmpfs none /host/run
ip() {{ here /usr/sbin/ip "$@"; }}
ip link set lo up
ip netns add client
ip link add wire0 type veth peer name wire1 netns client
here /usr/sbin/ethtool -K wire0 tx off >/dev/null
ip netns exec client ethtool -K wire1 tx off >/dev/null
ip link add link wire0 name wire0.5 type vlan id 5
ip -n client link add link wire1 name wire1.5 type vlan id 5
for link in wire0 wire0.5; do ip link set $link up; done
for link in wire1 wire1.5; do ip -n client link set $link up; done
ip addr add {V4}/24 dev wire0
ip addr add {V6}/64 dev wire0 nodad
ip addr add 10.77.5.1/24 dev wire0.5
ip -n client addr add 10.77.0.2/24 dev wire1
ip -n client addr add fd77::2/64 dev wire1 nodad
ip -n client addr add 10.77.5.2/24 dev wire1.5
here python3 -B -c '
import socket
s = socket.create_server(("::", 2222), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    client, _ = s.accept()
    client.sendall(b"hello")
    client.close()
' &
chroot /host {pathlib.Path(GNOMON).resolve()} serve --port net_tap0,iface=tap0,remote=wire0 \
  --ip {V4}/24 --ip {V6}/64 --ip 10.77.5.1/24 \
  --isolated on --tcp worker --cores 0 --huge off --engine cpu -m 16 &
gnomon=$!
ip netns exec client python3 -B "{ASKS.resolve()}"
kill -TERM $gnomon
wait $gnomon
echo "status $?"
ip netns exec client python3 -B "{ASKS.resolve()}" --after
"""


def test_isolated(check, namespace, scratch):
    guest = guests.Guest(check, scratch, MODULES, DOES)
    server = namespace("server")
    guests.tap(server)
    guest.asks(server, "isolated")
    asked = len(guest.says("^(?:ok|FAILED) .*isolated: "))
    check("all was asked", asked == 7, f"{asked} of 7")
    check("gnomon ends with status 0", guest.says("^status 0"))
    check("no other frame came to it", guest.says(r"^frames .* \+ 0 punted \+ 0 dropped"))
    guest.told()
