#!/usr/bin/env python3
"""Peers of a TCP server, made with scapy, segment by segment, on a wire to it.

    hostile_tcp.py ADDRESS DEVICE [--syns N] [--share SHARE] [--label TEXT]      ADDRESS without a port: IPv4 or IPv6

Each peer is a host of its own on the wire, with addresses that the kernel here does not have, so that no other TCP answers
for it. What must happen is what RFC 9293, 5961 and 7323 ask for. Prints `ok NAME` or `FAILED NAME: why` per case, and
exits 1 if any failed. With --syns at last so many SYNs from forged addresses come beside honest
clients, which are the kernel's and must keep their share of the replies.
"""

import argparse
import select
import socket
import sys
import time

from honest import PORT, Beside
from scapy.arch import get_if_hwaddr
from scapy.config import conf
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

PEER_MAC = "02:00:00:00:66:01"
PEERS = {4: "10.77.0.66", 6: "fd77::66"}
HEAR_S = 2.0
"""Longest wait for a segment that must come."""
QUIET_S = 0.3
"""How long nothing must come, where nothing must."""
MODULUS = 1 << 32
LINUX = [("MSS", 1460), ("SAckOK", b""), ("Timestamp", (100, 0)), ("NOP", None), ("WScale", 7)]
FREEBSD = [("MSS", 1460), ("NOP", None), ("WScale", 6), ("SAckOK", b""), ("Timestamp", (100, 0))]
WINDOWS = [("MSS", 1460), ("NOP", None), ("WScale", 8), ("NOP", None), ("NOP", None), ("SAckOK", b"")]
OLD = [("MSS", 536)]
CASES = []
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


class Differs(Exception):
    """Something else happened than what must."""


def case(name):
    """Registers a case: a function of a wire."""

    def register(function):
        CASES.append((name, function))
        return function

    return register


def must(condition, what):
    """Raises Differs unless it holds."""
    if not condition:
        raise Differs(what)


def after(a, b):
    """How far a sequence number is after another."""
    return (a - b + MODULUS // 2) % MODULUS - MODULUS // 2


class Wire:
    """The wire to the server, and the server's address on it."""

    def __init__(self, address, device):
        self.server = address
        self.version = 6 if ":" in address else 4
        self.peer = PEERS[self.version]
        self.socket = conf.L2socket(iface=device)
        self.mac = None
        self.port = 20000 + int(time.time() * 50) % 20000
        self.resolve()

    def resolve(self):
        """Finds the server's MAC address as a host does."""
        if self.version == 4:
            ask = Ether(src=PEER_MAC, dst="ff:ff:ff:ff:ff:ff") / ARP(
                op="who-has", hwsrc=PEER_MAC, psrc=self.peer, pdst=self.server
            )
        else:
            ask = Ether(src=PEER_MAC, dst="33:33:ff:00:00:01") / IPv6(src=self.peer, dst="ff02::1:ff00:1")
            ask /= ICMPv6ND_NS(tgt=self.server) / ICMPv6NDOptDstLLAddr(type=1, lladdr=PEER_MAC)
        for _ in range(5):
            self.socket.send(ask)
            for frame in self.frames(1.0):
                is_answer = ARP in frame and frame[ARP].op == 2 and frame[ARP].psrc == self.server
                if is_answer or (ICMPv6ND_NA in frame and frame[ICMPv6ND_NA].tgt == self.server):
                    self.mac = frame[Ether].src
                    return
        raise Differs("the server's MAC address is not known")

    def frames(self, seconds):
        """What comes in that time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.socket.ins], [], [], left)[0]:
                frame = self.socket.recv(9000)
                if frame is not None:
                    yield frame

    def open(self, **options):
        """A peer that is connected."""
        peer = Peer(self, **options)
        peer.connect()
        return peer


class Peer:
    """One end of a connection."""

    def __init__(self, wire, isn=1000, options=LINUX, window=65535, port=None):
        wire.port += 1
        self.wire, self.port = wire, port or wire.port
        self.next, self.wanted = isn, 0
        self.options, self.window = options, window
        self.answer = None

    def send(self, flags, payload=b"", **fields):
        """Sends one segment; what is not named is as it must be. The next number stays."""
        fields.setdefault("seq", self.next % MODULUS)
        fields.setdefault("ack", self.wanted if "A" in flags else 0)
        fields.setdefault("window", self.window)
        ip = IP if self.wire.version == 4 else IPv6
        frame = Ether(src=PEER_MAC, dst=self.wire.mac) / ip(src=self.wire.peer, dst=self.wire.server)
        frame /= TCP(sport=self.port, dport=PORT, flags=flags, **fields)
        self.wire.socket.send(frame / payload if payload else frame)

    def hear(self, seconds=HEAR_S):
        """The segments that come to this peer in that time."""
        for frame in self.wire.frames(seconds):
            layer = IP if self.wire.version == 4 else IPv6
            if layer not in frame or TCP not in frame:
                continue
            tcp = frame[TCP]
            if frame[layer].src == self.wire.server and (tcp.sport, tcp.dport) == (PORT, self.port):
                # Ethernet pads short frames.
                length = (
                    frame[IP].len - 4 * (frame[IP].ihl + tcp.dataofs)
                    if layer is IP
                    else frame[IPv6].plen - 4 * tcp.dataofs
                )
                yield tcp, bytes(tcp.payload)[:length]

    def first(self, what, flags, seconds=HEAR_S):
        """The first segment with these flags."""
        for tcp, payload in self.hear(seconds):
            if int(tcp.flags) & flags == flags:
                return tcp, payload
        raise Differs(f"no {what}")

    def quiet(self, what, seconds=QUIET_S):
        """Nothing comes with data, SYN, FIN or RST."""
        for tcp, payload in self.hear(seconds):
            must(not payload and not int(tcp.flags) & (SYN | FIN | RST), f"{what}: {tcp.summary()}")

    def connect(self):
        """The handshake."""
        self.send("S", options=self.options)
        self.answer, _ = self.first("SYN-ACK", SYN | ACK)
        must(self.answer.ack == (self.next + 1) % MODULUS, "the SYN-ACK acknowledges another number")
        self.next, self.wanted = self.next + 1, (self.answer.seq + 1) % MODULUS
        self.send("A")

    def expect(self, want):
        """Takes just these bytes of the stream, in order, and acknowledges each segment; the sizes of segments."""
        got, sizes = b"", []
        for tcp, payload in self.hear(5 * HEAR_S):
            must(not int(tcp.flags) & RST, "a reset")
            ahead = after(tcp.seq, self.wanted)
            if payload and -len(payload) < ahead <= 0:
                got += payload[-ahead:]
                sizes.append(len(payload))
                self.wanted = (self.wanted + len(payload) + ahead) % MODULUS
                self.send("A")
            if len(got) >= len(want):
                break
        must(got == want, f"{len(got)} of {len(want)} bytes: {got[:60]!r}")
        return sizes

    def say(self, payload):
        """Sends it in one segment."""
        self.send("PA", payload)
        self.next += len(payload)

    def ask(self, request=b"mn\r\n", reply=b"MN\r\n"):
        """Sends a request and takes its reply."""
        self.say(request)
        self.expect(reply)

    def end(self):
        """Both ends say that no more comes."""
        self.send("FA")
        self.next += 1
        tcp, payload = self.first("FIN", FIN)
        self.wanted = (tcp.seq + len(payload) + 1) % MODULUS
        self.send("A")

    def is_alive(self):
        """Whether requests are answered still."""
        self.ask()


def value(n, length):
    """Bytes that differ."""
    return bytes((n * 31 + i * 7 + i // 251) % 256 for i in range(length))


def stored(wire, key, data):
    """Stores a value, in segments of a kilobyte, and says what a `get` of it is answered."""
    peer = wire.open()
    request = b"set %s 0 0 %d\r\n%s\r\n" % (key, len(data), data)
    for at in range(0, len(request), 1024):
        peer.say(request[at : at + 1024])
        time.sleep(0.001)
    peer.expect(b"STORED\r\n")
    peer.end()
    return b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(data), data)


@case("the options of Linux, FreeBSD, Windows and of old are understood, and none is answered that was not offered")
def _(wire):
    for options in (LINUX, FREEBSD, WINDOWS, OLD, []):
        peer = wire.open(options=options)
        offered = {name for name, _ in options} | {"MSS", "NOP", "EOL"}
        answered = {name for name, _ in peer.answer.options}
        must(answered <= offered, f"{answered} for {offered}")
        peer.ask()
        peer.end()


@case("a reset in the window, but not the next number, is challenged, and one that is exact ends it")
def _(wire):
    peer = wire.open()
    peer.send("R", seq=(peer.next + 100) % MODULUS)
    challenge, _ = peer.first("challenge", ACK)
    must(not int(challenge.flags) & RST and challenge.ack == peer.next, "the challenge says where we stand")
    peer.is_alive()
    peer.send("R", seq=(peer.next + 70000 * 128) % MODULUS)
    peer.is_alive()
    peer.send("R")
    time.sleep(0.05)
    peer.send("PA", b"mn\r\n")
    peer.first("reset of what has ended", RST)


@case("a SYN in the middle is challenged; a client that forgot comes back")
def _(wire):
    peer = wire.open()
    peer.is_alive()
    peer.send("S", seq=(peer.next + 5_000_000) % MODULUS, options=LINUX)
    challenge, _ = peer.first("challenge", ACK)
    must(not int(challenge.flags) & SYN and challenge.ack == peer.next % MODULUS, "it is a challenge")
    # What a rebooted host says to that, and then again.
    peer.send("R", seq=challenge.ack)
    time.sleep(0.05)
    again = Peer(wire, isn=peer.next + 5_000_000, port=peer.port)
    again.connect()
    again.is_alive()
    again.end()


@case("segments are as small as the client's MSS")
def _(wire):
    want = stored(wire, b"small", value(1, 5000))
    for mss in (88, 256, 536):
        peer = wire.open(options=[("MSS", mss)])
        peer.say(b"get small\r\n")
        longest = max(peer.expect(want))
        must(longest <= mss, f"{longest} bytes for an MSS of {mss}")
        peer.end()


@case("a zero window is probed, nothing is sent into it, and all comes when it opens")
def _(wire):
    want = stored(wire, b"window", value(2, 30000))
    peer = wire.open(options=[("MSS", 1460)], window=0)
    peer.say(b"get window\r\n")
    probes, until = 0, time.monotonic() + 4
    while time.monotonic() < until:
        for tcp, payload in peer.hear(0.5):
            must(not int(tcp.flags) & RST, "a reset")
            must(len(payload) <= 1, f"{len(payload)} bytes into a shut window")
            # The request's acknowledgement has no byte, and is none.
            if payload:
                probes += 1
                peer.send("A")
    must(probes >= 2, f"{probes} probes")
    peer.window = 4000
    peer.send("A")
    peer.expect(want)
    peer.end()


@case("what overlaps, comes twice or out of order is put together once")
def _(wire):
    peer = wire.open()
    data = value(3, 1300)
    request = b"set over 0 0 1300\r\n%s\r\nget over\r\n" % data
    want = b"STORED\r\nVALUE over 0 1300\r\n%s\r\nEND\r\n" % data
    whole = len(request)
    pieces = [(0, 300), (1000, whole), (200, 500), (1000, whole), (400, 410), (800, 1100), (450, 900), (0, whole)]
    for start, end in pieces:
        peer.send("PA", request[start:end], seq=(peer.next + start) % MODULUS)
    peer.next += len(request)
    peer.expect(want)
    peer.is_alive()
    peer.end()


@case("numbers go round")
def _(wire):
    data = value(4, 3000)
    for before in (2, 10, 700, 3000):
        peer = wire.open(isn=MODULUS - before)
        request = b"set round 0 0 3000\r\n%s\r\nget round\r\n" % data
        for at in range(0, len(request), 500):
            peer.say(request[at : at + 500])
        want = b"STORED\r\nVALUE round 0 3000\r\n%s\r\nEND\r\n" % data
        peer.expect(want)
        peer.end()


@case("the client's FIN in each state: before the request is whole, with it, twice, and after the server's")
def _(wire):
    # With a request in it: the reply comes, then the server's.
    peer = wire.open()
    peer.send("FPA", b"mn\r\n")
    peer.next += 5
    peer.expect(b"MN\r\n")
    # Right after the handshake; the FIN comes again.
    peer = wire.open()
    peer.send("FA")
    peer.send("FA")
    peer.next += 1
    tcp, _ = peer.first("FIN", FIN)
    peer.wanted = (tcp.seq + 1) % MODULUS
    peer.send("A")
    peer.quiet("after the last acknowledgement")
    # Half a request.
    peer = wire.open()
    peer.say(b"set half 0 0 100\r\nabc")
    peer.end()
    # With the handshake's last segment.
    peer = Peer(wire)
    peer.send("S", options=LINUX)
    answer, _ = peer.first("SYN-ACK", SYN | ACK)
    peer.next, peer.wanted = peer.next + 1, (answer.seq + 1) % MODULUS
    peer.send("FA")
    peer.next += 1
    peer.first("FIN", FIN)
    # A FIN before what comes before it.
    peer = wire.open()
    peer.send("FA", seq=peer.next + 4)
    peer.quiet("a FIN behind a gap is not the end")
    peer.send("PA", b"mn\r\n")
    peer.expect(b"MN\r\n")
    # The server ends first: the client's is taken after it, and a command behind the end is reset.
    peer = wire.open()
    peer.say(b"quit\r\n")
    tcp, _ = peer.first("FIN after quit", FIN)
    peer.wanted = (tcp.seq + 1) % MODULUS
    peer.send("FA")
    peer.next += 1
    tcp, _ = peer.first("acknowledgement of the FIN", ACK)
    must(tcp.ack == peer.next, "it acknowledges the FIN")
    peer = wire.open()
    peer.say(b"quit\r\n")
    tcp, _ = peer.first("FIN after quit", FIN)
    peer.wanted = (tcp.seq + 1) % MODULUS
    peer.send("A")
    peer.send("PA", b"mn\r\n")
    peer.first("reset of a command behind the end", RST)


@case("both end at once")
def _(wire):
    peer = wire.open()
    peer.say(b"quit\r\n")
    # Before the server's FIN is heard: this one acknowledges nothing of it.
    peer.send("FA")
    peer.next += 1
    tcp, _ = peer.first("FIN", FIN)
    peer.wanted = (tcp.seq + 1) % MODULUS
    peer.send("A")
    peer.quiet("both have ended")


@case("a half-open connection: the server's segments are answered with a reset, and it lets go")
def _(wire):
    stored(wire, b"gone", value(5, 20000))
    peer = wire.open(options=[("MSS", 536)], window=2000)
    peer.say(b"get gone\r\n")
    peer.first("data", ACK)
    # The host has forgotten the connection. What was on its way comes still.
    peer.send("R")
    for _ in peer.hear(QUIET_S):
        pass
    peer.quiet("it has let go", 1.5)


@case("segments to no connection are reset")
def _(wire):
    peer = Peer(wire)
    peer.send("A", ack=77)
    tcp, _ = peer.first("reset", RST)
    must(tcp.seq == 77, "the reset has the number that was acknowledged")


@case("a SYN-ACK that is not acknowledged is sent again")
def _(wire):
    peer = Peer(wire)
    peer.send("S", options=LINUX)
    one, _ = peer.first("SYN-ACK", SYN | ACK)
    two, _ = peer.first("SYN-ACK again", SYN | ACK, 5)
    must(one.seq == two.seq, "with another number")
    peer.send("R", seq=(peer.next + 1) % MODULUS)


def add(checksum, words):
    """An Internet checksum with words added to what it covers (RFC 1624)."""
    total = (~checksum & 0xFFFF) + sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def flood(wire, device, count):
    """So many SYNs of nobody's, each from another address and port."""
    base = Ether(src=PEER_MAC, dst=wire.mac) / IP(src="0.0.0.0", dst=wire.server, id=1)
    base /= TCP(sport=0, dport=PORT, flags="S", seq=0, options=[("MSS", 1460)])
    frame = bytearray(bytes(base))
    ip_sum, tcp_sum = (int.from_bytes(frame[at : at + 2], "big") for at in (24, 50))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((device, 0))
        for n in range(count):
            source = 0xAC10_0000 + (n * 0x9E3779B1 >> 8) % (1 << 20)
            port = 1024 + n * 7919 % 64000
            words = (source >> 16, source & 0xFFFF)
            frame[24:26] = add(ip_sum, words).to_bytes(2, "big")
            frame[26:30] = source.to_bytes(4, "big")
            frame[34:36] = port.to_bytes(2, "big")
            frame[50:52] = add(tcp_sum, (*words, port)).to_bytes(2, "big")
            out.send(frame)
    is_syn_ack = lambda f: TCP in f and int(f[TCP].flags) & (SYN | ACK) == SYN | ACK
    # The socket's buffer is full of our own SYNs; reading these takes longer than hearing. SYN-ACKs come more than once.
    heard = wire.frames(10 * HEAR_S)
    must(any(is_syn_ack(f) and f[IP].dst.startswith("172.") for f in heard), "no SYN is answered")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("device")
    parser.add_argument("--syns", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--label", default="")
    asked = parser.parse_args()
    must(get_if_hwaddr(asked.device) != PEER_MAC, "the peer's MAC address is the device's")
    wire = Wire(asked.address, asked.device)
    failed = False
    for name, run in CASES:
        try:
            run(wire)
        except Differs as differs:
            print(f"FAILED {asked.label}{name}: {differs}", flush=True)
            failed = True
        else:
            print(f"ok      {asked.label}{name}", flush=True)
    if asked.syns:
        with Beside(asked.address, asked.share) as beside:
            flood(wire, asked.device, asked.syns)
        for text, is_well in beside.report:
            print(f"{'ok     ' if is_well else 'FAILED'} {asked.label}{asked.syns} SYNs: {text}", flush=True)
            failed |= not is_well
    return failed


if __name__ == "__main__":
    sys.exit(main())
