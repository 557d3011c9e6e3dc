#!/usr/bin/env python3
"""A memcached client that trusts nobody: ASCII over TCP and UDP, standard library only.

Every UDP reply is checked against protocol.txt: the request id comes back, datagrams are numbered
0..n-1 of n, the reserved field is 0, none carries more than 1,392 bytes and only the last fewer.

    memc.py wait HOST:PORT SECONDS         until the server answers `version` over UDP
    memc.py udp HOST:PORT 'get a b'        one request, the reply on standard output
    memc.py tcp HOST:PORT 'stats'          the same over TCP
    memc.py flood HOST:PORT 'get a' COUNT  as many requests as fast as can be, over UDP, unheard

With `--source ADDR` at the end, from that address.
"""

import functools
import itertools
import socket
import struct
import sys
import time

HEADER = struct.Struct("!HHHH")
DATAGRAM_PAYLOAD_MAX = 1392
TIMEOUT_S = 3.0


class Wrong(Exception):
    """The server sent something that the protocol does not allow."""


class NoReply(Exception):
    """Nothing, or not everything, came within the time given."""


class Reassembly:
    """Collects the datagrams of one reply."""

    def __init__(self, request_id):
        self.request_id = request_id
        self.parts = {}
        self.total = None

    def add(self, datagram):
        """Takes one datagram; says whether the reply is complete. Raises Wrong."""
        if len(datagram) < HEADER.size:
            raise Wrong(f"a datagram of {len(datagram)} bytes has no room for a frame header")
        request_id, seq, total, reserved = HEADER.unpack_from(datagram)
        if request_id != self.request_id:
            raise Wrong(f"id {request_id} in reply to {self.request_id}")
        if reserved != 0:
            raise Wrong(f"reserved field holds {reserved}")
        if self.total not in (None, total):
            raise Wrong(f"total changes from {self.total} to {total}")
        if seq >= total:
            raise Wrong(f"datagram {seq} of {total}")
        if seq in self.parts:
            raise Wrong(f"datagram {seq} came twice")
        payload = datagram[HEADER.size :]
        if len(payload) > DATAGRAM_PAYLOAD_MAX:
            raise Wrong(f"{len(payload)} bytes in one datagram")
        if seq < total - 1 and len(payload) != DATAGRAM_PAYLOAD_MAX:
            raise Wrong(f"datagram {seq} of {total} holds {len(payload)} bytes")
        self.total = total
        self.parts[seq] = payload
        return len(self.parts) == total

    def payload(self):
        """The whole reply."""
        return b"".join(self.parts[i] for i in range(self.total))


@functools.cache
def address(text):
    """`host:port` or `[v6]:port` as (family, sockaddr)."""
    host, _, port = text.rpartition(":")
    info = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    return info[0], info[4]


def is_complete(command, reply):
    """Whether `reply` is all that a server says to the one command `command`."""
    if not reply.endswith(b"\r\n"):
        return False
    first = reply.split(b"\r\n", 1)[0]
    if first.startswith((b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")):
        return True
    if command.split()[0] in (b"get", b"gets", b"stats"):
        return reply.endswith(b"END\r\n") and (first != b"END" or reply == b"END\r\n")
    return True


class Udp:
    """ASCII over UDP."""

    def __init__(self, server, source=None, first_id=1):
        family, self.server = address(server)
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        # A large reply is a burst: without room in the socket the kernel would drop some of it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        if source:
            self.socket.bind(source)
        self.socket.connect(self.server)
        self.ids = itertools.cycle(range(first_id, 1 << 16))

    def send(self, payload, seq=0, total=1, reserved=0):
        """Sends one datagram and returns its id."""
        request_id = next(self.ids)
        self.socket.send(HEADER.pack(request_id, seq, total, reserved) + payload)
        return request_id

    def datagrams(self, payload, timeout_s=TIMEOUT_S):
        """The datagrams that answer one request, in order of arrival. Raises NoReply, Wrong."""
        reply = Reassembly(self.send(payload))
        got = []
        deadline = time.monotonic() + timeout_s
        while True:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                datagram = self.socket.recv(65536)
            except (TimeoutError, ConnectionRefusedError):
                raise NoReply(f"{len(got)} of {reply.total or '?'} datagrams came") from None
            got.append(datagram)
            if reply.add(datagram):
                self.reply = reply
                return got

    def ask(self, payload, timeout_s=TIMEOUT_S):
        """One request, the whole reply."""
        self.datagrams(payload, timeout_s)
        return self.reply.payload()

    def silent(self, payload, seconds=0.3, **header):
        """Whether the server answers nothing to `payload`."""
        self.send(payload, **header)
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(65536)
            return False
        except (TimeoutError, ConnectionRefusedError):
            return True

    def close(self):
        """Closes the socket."""
        self.socket.close()


class Tcp:
    """ASCII over TCP."""

    def __init__(self, server, source=None, timeout_s=10.0):
        _, sockaddr = address(server)
        self.socket = socket.create_connection(sockaddr[:2], timeout=timeout_s, source_address=source)
        self.buffer = b""

    def ask(self, command):
        """One command, its whole reply."""
        self.socket.sendall(command)
        while not is_complete(command, self.buffer):
            more = self.socket.recv(1 << 20)
            if not more:
                raise NoReply(f"closed after {self.buffer[:80]!r}")
            self.buffer += more
        reply, self.buffer = self.buffer, b""
        return reply

    def stats(self, argument=b""):
        """`stats` as a dictionary."""
        lines = self.ask(b"stats" + (b" " + argument if argument else b"") + b"\r\n").split(b"\r\n")
        return {k.decode(): v.decode() for k, v in (l.split(b" ", 2)[1:] for l in lines if l.startswith(b"STAT "))}

    def closed_by_peer(self):
        """Whether the server has closed the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        """Closes the connection."""
        self.socket.close()


def set_command(key, value, flags=0, exptime=0):
    """A `set` for either transport."""
    return b"set %s %d %d %d\r\n%s\r\n" % (key, flags, exptime, len(value), value)


def hit(key, value, flags=0):
    """What a `get` of one key answers when it is there."""
    return b"VALUE %s %d %d\r\n%s\r\nEND\r\n" % (key, flags, len(value), value)


def wait(server, seconds):
    """Until the server answers over UDP. False when it did not in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        client = Udp(server)
        try:
            if client.ask(b"version\r\n", 0.3).startswith(b"VERSION "):
                return True
        except (NoReply, OSError):
            time.sleep(0.05)
        finally:
            client.close()
    return False


def main(argv):
    """The command line above."""
    source = None
    if argv[-2:-1] == ["--source"]:
        source = (argv[-1], 0)
        argv = argv[:-2]
    verb, server, argument = argv[1:4]
    if verb == "wait":
        return 0 if wait(server, float(argument)) else 1
    if verb == "flood":
        client = Udp(server, source)
        for _ in range(int(argv[4])):
            client.send(argument.encode() + b"\r\n")
        return 0
    client = {"udp": Udp, "tcp": Tcp}[verb](server, source)
    sys.stdout.write(client.ask(argument.encode() + b"\r\n").decode("latin-1"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
