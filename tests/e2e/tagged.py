#!/usr/bin/env python3
"""Requests with and without VLAN tags: each is answered as it came.

    tagged.py DEVICE SERVER_IPV4 CLIENT_IPV4

Run where DEVICE is, the client's end of the wire; the server has been spoken to, so that its hardware address is known. Prints a
line for each check, and exits 1 when one failed.
"""

import re
import select
import socket
import struct
import subprocess
import sys
import time

AUXDATA, TAG_VALID, OUTGOING = 8, 0x10, 4
REQUEST = b"\0\1\0\0\0\1\0\0version\r\n"


def checksum(data):
    """Of IPv4's header, RFC 1071."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~(total + (total >> 16)) & 0xFFFF


class Wire:
    """The client's end, where frames are sent and seen whole."""

    def __init__(self, device, server, client):
        self.ends = [socket.inet_aton(address) for address in (client, server)]
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((device, 0))
        self.socket.setsockopt(263, AUXDATA, 1)  # SOL_PACKET
        self.mac = self.socket.getsockname()[4]
        neighbours = subprocess.run(["ip", "neigh", "show", server], stdout=subprocess.PIPE, check=True, text=True).stdout
        self.server_mac = bytes.fromhex(re.search(r"lladdr (\S+)", neighbours)[1].replace(":", ""))

    def send(self, to, tags, ethertype, payload):
        """A frame with those tags, the outer one first."""
        tags = b"".join(struct.pack("!HH", 0x8100, tag) for tag in tags)
        self.socket.send(to + self.mac + tags + struct.pack("!H", ethertype) + payload)

    def ask(self, tags, port):
        """A request from that port."""
        udp = struct.pack("!4H", port, 11211, 8 + len(REQUEST), 0) + REQUEST
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0) + b"".join(self.ends)
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
        self.send(self.server_mac, tags, 0x0800, head + udp)

    def who_has(self, tags):
        """An ARP request for the server's address."""
        arp = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + self.mac + self.ends[0] + bytes(6) + self.ends[1]
        self.send(b"\xff" * 6, tags, 0x0806, arp)

    def seen(self, seconds, is_last=lambda rest: False):
        """The server's next frames, tags and all behind them, until the last one has come."""
        frames, until = [], time.monotonic() + seconds
        while not (frames and is_last(frames[-1][1])) and (left := until - time.monotonic()) > 0:
            if not select.select([self.socket], [], [], left)[0]:
                break
            frame, beside, _, source = self.socket.recvmsg(4096, 256)
            if source[2] == OUTGOING or frame[6:12] != self.server_mac:
                continue
            tags = []
            for _, _, data in beside:
                status, _, _, _, _, tag, _ = struct.unpack("IIIHHHH", data[:20])
                tags += [tag] if status & TAG_VALID else []
            rest = frame[12:]
            while rest[:2] == b"\x81\x00":
                tags.append(struct.unpack("!H", rest[2:4])[0])
                rest = rest[4:]
            frames.append((tuple(tags), rest))
        return frames


def answered_as_they_came(wire):
    """A hundred requests, of each kind a third."""
    kinds = ((), (7,), (0x6FFF,))
    asked = {6000 + n: kinds[n % 3] for n in range(99)}
    came = {}
    for port, tags in asked.items():
        wire.ask(tags, port)
        # The server's kernel may speak on this wire, too.
        for got, rest in wire.seen(1, lambda rest: is_reply(rest, port)):
            if is_reply(rest, port):
                came[port] = got
    wrong = {port: tags for port, tags in came.items() if asked[port] != tags}
    lost = len(asked) - len(came)
    return f"{lost} not answered, {wrong} with other tags" if lost or wrong else ""


def is_reply(rest, port):
    """A datagram to that port."""
    return rest[:2] == b"\x08\x00" and rest[11] == 17 and struct.unpack("!H", rest[24:26])[0] == port


def arp_as_it_came(wire):
    """An ARP request behind a tag."""
    wire.who_has((7,))
    replies = [tags for tags, rest in wire.seen(2, is_arp) if is_arp(rest)]
    return "" if replies == [(7,)] else f"answered with {replies}"


def is_arp(rest):
    """An ARP packet."""
    return rest[:2] == b"\x08\x06"


def main(argv):
    """Both checks."""
    wire = Wire(*argv[1:])
    wire.seen(0.3)
    failed = False
    for name, check in (("requests", answered_as_they_came), ("an ARP request", arp_as_it_came)):
        why = check(wire)
        failed |= bool(why)
        print(f"FAILED  {name} behind VLAN tags: {why}" if why else f"ok      {name} behind VLAN tags")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv))
