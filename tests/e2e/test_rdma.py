"""One-sided reads, judged by somebody else's RDMA: Debian's kernel in a QEMU guest, its rdma_rxe and libibverbs, over
a bridge and DPDK's net_tap; clients are in C and in Rust. First the queue pairs' connections are the kernel's TCP,
then the workers'; over IPv4 and IPv6. At last the guest's sch_netem loses, copies and overtakes beside a writer.

    RDMA_READS=1000000 RDMA_SECONDS=3600 RDMA_FAULTS="delay 300us 200us loss 1%" scripts/e2e.sh rdma --file-seconds 0
        the storm; default: 100000 READs, or as many as there is time for in 150 seconds, 10000 at least
    RXE_PCAP=FILE scripts/e2e.sh rdma -m asked
        records the frames that dataplane/tests/rxe answers: READs between two genuine endpoints, rdma_rxe in two
        guests, over IPv4 and IPv6 and with two path MTUs"""

import os
import shutil
import threading
import time

import pytest
from harness import captures, guest as guests
from harness.clients import c_client, rust_client
from harness.namespaces import must
from harness.wires import ADDRESSES, AT, AT6, CPUS, V4, V6

pytestmark = pytest.mark.needs("guest")

READS = os.environ.get("RDMA_READS", "100000")
SECONDS = int(os.environ.get("RDMA_SECONDS", "150"))
FAULTS = os.environ.get("RDMA_FAULTS", "delay 200us reorder 5% loss 1% duplicate 0.5%")
RXE = "crc32_generic ib_uverbs rdma_rxe"
MODULES = f"{RXE} sch_netem ifb act_mirred cls_matchall sch_ingress"

DOES = f"""
ip addr add 10.77.0.2/24 dev eth0
here /usr/bin/ip addr add fd77::2/64 dev eth0 nodad
here /usr/sbin/ethtool -K eth0 gso off gro off tso off
ip link set lo up
ip link set eth0 up
ip link set ifb0 up
here /usr/bin/rdma link add rxe0 type rxe netdev eth0
sleep 1
here "@client" {V4} 11211 check
here "@client" {V6} 11211 check
here "@rust" {AT} verbs
here "@rust" {AT6} verbs
if [ "$(word who)" = worker ]; then
  here /usr/sbin/tc qdisc add dev eth0 ingress
  here /usr/sbin/tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0
  for device in eth0 ifb0; do here /usr/sbin/tc qdisc add dev $device root netem {FAULTS}; done
  here "@client" {V4} 11211 storm {READS} {SECONDS}
  here /usr/sbin/tc -s qdisc show dev ifb0
fi
"""

RECORDS = f"""
host=1
[ "$(word who)" = responder ] || host=2
ip addr add 10.77.0.$host/24 dev eth0
here /usr/bin/ip addr add fd77::$host/64 dev eth0 nodad
here /usr/sbin/ethtool -K eth0 gso off gro off tso off
ip link set eth0 up
here /usr/bin/rdma link add rxe0 type rxe netdev eth0
sleep 1
[ $host = 2 ] || here "@responder" 11211
for mtu in 256 1024; do
  here "@client" {V4} 11211 pair $mtu
  here "@client" {V6} 11211 pair $mtu
done
"""

OURS = "(ip.src == 10.77.0.1 || ipv6.src == fd77::1) && udp.dstport == 4791"
FAULT = '(_ws.malformed || _ws.expert.severity == "Error" || ip.checksum.status == "Bad")'
# Annex A17 has no UDP checksum, over IPv6 neither.
SUMS = ("-o", "ip.check_checksum:TRUE", "-o", "udp.ignore_ipv6_zero_checksum:TRUE")


def bridge(server, *taps):
    """The guests' cables, and the kernel's end of the appliance's TAP device, meet in a bridge."""
    server.no_ipv6("default")
    server.ip("link add bridge type bridge")
    for device in taps:
        guests.tap(server, device)
        server.ip(f"link set {device} master bridge up")
    server.ip("link set bridge up")
    server.must("sh", "-c", "echo 0 >/proc/sys/net/ipv6/conf/default/disable_ipv6")


@pytest.mark.parametrize("tcp", ["kernel", "worker"])
def test_rdma(check, namespace, gnomon, undo, scratch, tcp):
    rust, client = rust_client(check, scratch, "--features", "verbs"), c_client(check, scratch)
    does = DOES.replace("@client", str(client)).replace("@rust", str(rust))
    guest = guests.Guest(check, scratch, MODULES, does)
    server = namespace("server")
    bridge(server, "gtap0")
    port = ("--port", "net_tap0,iface=atap0", *ADDRESSES, "--cores", CPUS[0])
    up = gnomon(server, *port, "--tcp", tcp, "--exception-rate", "100000", "--rdma", "-m", "256")
    up.ready(f"serves over net_tap, TCP by the {tcp}")
    server.ip("link set atap0 address 02:00:00:00:77:02")
    server.ip("link set atap0 master bridge up")
    # The storm would fill the disk.
    capture = undo.enter_context(captures.Capture(server, "gtap0", scratch / "wire.pcapng", "-c", "20000"))
    guest.asks(server, tcp, 1200 + SECONDS)
    checks = 38
    if tcp == "worker":
        checks = 39
        check("netem lost something", guest.says("dropped [1-9]"))
        check("what it lost was sent again", guest.says("^note +retries [1-9]"))
    good = len(guest.says("^ok "))
    check("all was checked", good == checks, f"{good} of {checks}")
    guest.told()
    capture.stop()
    n = captures.wireshark(capture.file, "infiniband && udp.dstport == 4791", ())
    check(f"Wireshark sees RDMA packets ({n})", n > 1000)
    n = captures.wireshark(capture.file, f"{OURS} && {FAULT}", SUMS)
    check("and finds no fault with ours", n == 0, f"{n} packets")
    if keep := os.environ.get("KEEP"):
        shutil.copy(capture.file, f"{keep}-{tcp}")
    up.stop()


@pytest.mark.asked
def test_record(check, namespace, undo, scratch):
    client, responder = (c_client(check, scratch, name) for name in ("client", "responder"))
    does = RECORDS.replace("@client", str(client)).replace("@responder", str(responder))
    guest = guests.Guest(check, scratch, RXE, does)
    server = namespace("server")
    bridge(server, "gtap0", "gtap1")
    pcap = scratch / "rxe.pcap"
    capture = undo.enter_context(captures.Capture(server, "gtap0", pcap, "-P", "-f", "udp port 4791"))
    other = threading.Thread(target=guest.runs, args=(server, "responder", 600, "gtap1", "02:00:00:00:77:02"))
    other.start()
    guest.asks(server, "requester", 600)
    guest.told()
    time.sleep(1)
    capture.stop()
    must("sh", "-c", f"ip netns pids {server.name} | xargs -r kill")
    other.join()
    if not check.failed:
        shutil.copy(pcap, os.environ["RXE_PCAP"])
