"""A wire between a client and the appliance, of each kind of DPDK port, and what a client at its other end may ask."""

import dataclasses
import os
import signal
import socket
import subprocess

from harness import captures, processes, servers
from harness.namespaces import Namespace, veth_pair
from harness.slap import slap

V4, V6 = "10.77.0.1", "fd77::1"
AT = f"{V4}:11211"
AT6 = f"[{V6}]:11211"
CPUS = [str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:2]]
"""Two workers on two queues, where the machine has two CPUs."""

ADDRESSES = ("--ip", f"{V4}/24", "--ip", f"{V6}/64")
TOO_LONG = "a request longer than a packet slot is refused in words"


@dataclasses.dataclass
class Wire:
    """Both namespaces, the client's NIC, the appliance, and how many workers it has."""

    server: Namespace
    client: Namespace
    device: str
    workers: int
    gnomon: servers.Server = None


PORTS = {
    "net_tap": "net_tap0,iface=gtap0",
    "af_packet": f"net_af_packet0,iface=wire0,qpairs={len(CPUS)}",
    # The driver takes one queue of a device that cannot say how many are combined, as veth cannot.
    "af_xdp": "net_af_xdp0,iface=wire0",
    "memif": "net_memif0,role=server,id=0,socket={socket},socket-abstract=no,mac=02:00:00:00:77:01",
}


def wire_up(kind, flags, *, check, namespace, gnomon, undo, scratch):
    """A client's namespace and the appliance's, and DPDK's net_tap, af_packet, af_xdp or memif between them, a queue
    to each worker; the appliance is started with the flags, and serves. At the client's end of the memif DPDK's
    testpmd joins it to a TAP device."""
    server, client = namespace("server"), namespace("client")
    device = "gtap0" if kind in ("net_tap", "memif") else "wire1"
    cpus = CPUS[:1] if kind in ("af_xdp", "memif") else CPUS
    wire = Wire(server, client, device, len(cpus))
    if device == "wire1":
        veth_pair(server, client, 1 if kind == "af_xdp" else 2)
        client.client_addresses(device)
    socket_ = scratch / f"{server.name}.sock"
    port = PORTS[kind].format(socket=socket_)
    wire.gnomon = gnomon(server, "--port", port, *ADDRESSES, "--cores", ",".join(cpus), *flags)
    if kind == "net_tap":
        # The kernel's end of the TAP device becomes the client's NIC.
        wire.gnomon.gets_to("makes its TAP device", lambda: server.ip_does(f"link show {device}"))
        # Ready, not merely there: the driver configures the device under the name that it gave it.
        wire.gnomon.ready("is ready")
        server.ip(f"link set {device} netns {client.name}")
    if kind == "memif":
        wire.gnomon.ready("is ready")
        # It runs until its standard input ends.
        testpmd = f"""nice -n 5 {os.environ.get("TESTPMD", "dpdk-testpmd")} --no-huge -m 256 --no-shconf --no-pci
            -l {CPUS[0]},{CPUS[-1]} --vdev net_memif0,role=client,id=0,socket={socket_},socket-abstract=no
            --vdev net_tap0,iface={device} -- --forward-mode=io --auto-start --total-num-mbufs=16384"""
        joins = client.argv(*testpmd.split())
        undo.enter_context(processes.Process(*joins, log=scratch / "testpmd", stdin=subprocess.PIPE))
        wire.gnomon.gets_to("testpmd makes its TAP device", lambda: client.ip_does(f"link show {device}"))
    if device == "gtap0":
        # Both ends of a TAP device have one address until one of them takes another.
        client.ip(f"link set {device} address 02:00:00:00:77:02 up")
        client.client_addresses(device)
    name = f"serves over {kind}"
    if "-Z" in flags:
        # Over TLS it says nothing to who has no certificate of its authority.
        wire.gnomon.gets_to(name, lambda: client.run(*f"ping -q -c 1 -W 1 {V4}".split()).returncode == 0)
    else:
        wire.gnomon.serves(name, AT, client)
    return wire


def all_checks(check, wire, file, *args):
    """All that a client at the other end of a wire may ask of the appliance. The arguments go to edges.py over
    IPv4."""
    client = wire.client

    def ping(name, words, to=V4):
        check.runs(name, *client.argv("ping", "-q", *words.split(), "-i", "0.2", "-W", "2", to))

    ping("ping", "-c 5")
    ping("ping, 1,400 bytes", "-c 3 -s 1400")
    ping("IPv6 ping", "-c 5", V6)
    ping("IPv6 ping, 1,400 bytes", "-c 3 -s 1400", V6)
    with captures.Capture(client, wire.device, file) as capture:
        check("the capture starts", capture.started, capture.said())
        edges = client.argv("tests/e2e/edges.py")
        check.counted(*edges, AT, AT, "--source", "10.77.0.2", "--label", "IPv4: ", *args)
        check.counted(*edges, AT6, AT6, "--source", "fd77::2", "--label", "IPv6: ")
        ping("ping while captured", "-c 2")
        ping("IPv6 ping while captured", "-c 2", V6)
        capture.stop()
    captures.is_clean(check, file, V4, V6)
    check.counted(*client.argv("timeout", "200", "tests/e2e/tagged.py", wire.device, V4, "10.77.0.2"))
    for more, seconds in (("", 5), (" -d 10", 2)):
        load = f"-s {AT} -U -T 1 -c 16 -t {seconds}s{more}"
        slap(check, f"memcaslap -U{more} at full speed: no wrong value", client, *load.split(), lost="counted")


def own_capture(check, wire, place, scratch):
    """What the appliance captures of itself is what the wire carried, each frame once, and each worker has its part.
    `place`: where the appliance's metrics are."""
    own, log, seen = scratch / "own.pcapng", scratch / "own.log", scratch / "seen.pcapng"
    writes = (servers.GNOMON, "capture", "--socket", place, "--write", own)
    wanted = ("eth.src", "eth.dst", "ip.src", "ip.dst", "udp.srcport", "udp.dstport", "udp.payload")
    with captures.Capture(wire.client, wire.device, seen) as capture, processes.Process(*writes, log=log) as writer:
        check("a capture on the wire starts", capture.started, capture.said())
        check("gnomon capture starts", processes.wait_for(20, lambda: "capturing" in writer.said()), writer.said())
        with check.named("64 clients ask, 8 times each"):
            ask_all(wire.client)
        writer.send_signal(signal.SIGINT)
        check("gnomon capture ends", writer.ends(30) == 0, writer.said())
        # What dumpcap has not read yet when it is told to stop is lost.
        has_all = processes.wait_for(20, lambda: captures.wireshark(seen, "udp.port == 11211", ()) >= 1024)
        check("the capture on the wire has all", has_all)
        capture.stop()
        check("it lost nothing", ", 0 lost" in writer.said(), writer.said())
    ours, theirs = (sorted(captures.fields(file, "udp.port == 11211", *wanted)) for file in (own, seen))
    check("each request and each reply is in it", len(ours) == 1024, f"{len(ours)} of 1024")
    check("they are those of the wire", ours == theirs, "\n".join(["", *sorted(set(ours) ^ set(theirs))]))
    parts = set(captures.tshark(own, "-T", "fields", "-e", "frame.interface_name"))
    check(f"each of {wire.workers} workers has a part", len(parts) == wire.workers, str(parts))


def ask_all(client):
    """64 clients, 8 gets each."""
    with client:
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(64)]
    for n in range(8):
        for one in sockets:
            one.settimeout(20)
            one.connect((V4, 11211))
            one.send(b"\0%c\0\0\0\1\0\0get nobody%d\r\n" % (n, n))
            assert one.recv(2048) == b"\0%c\0\0\0\1\0\0END\r\n" % n
    for one in sockets:
        one.close()
