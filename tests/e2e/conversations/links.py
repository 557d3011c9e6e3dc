"""Connections to one server: what is sent, and what came back by the time that a sentinel sent behind
it is answered.

How it ended: `end` when the sentinel was answered, `closed` when the server hung up, `waits` when
nothing came for as long as was to be waited, and over UDP in words what the protocol does not allow.
"""

import socket
import time

import memc

ANSWER_S = 20.0
# Time for a server to take notice of what was sent so far.
PAUSE_S = 0.0003
PIECE_BYTES = 65536


class Tcp:
    """A connection."""

    def __init__(self, server):
        _, sockaddr = memc.address(server)
        self.socket = socket.create_connection(sockaddr[:2], timeout=ANSWER_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got = b""

    def push(self, piece):
        """Sends what fits on its way without being read."""
        try:
            self.socket.settimeout(ANSWER_S)
            self.socket.sendall(piece)
        except ConnectionError:
            # The server hung up on what it cannot follow; what it said first is still there.
            pass

    def drain(self):
        """Takes what has come so far."""
        self.socket.settimeout(0)
        try:
            while more := self.socket.recv(1 << 20):
                self.got += more
        except (BlockingIOError, ConnectionError):
            pass

    def send(self, commands, sentinel):
        """A burst of small commands, and what tells its end."""
        self.push(b"".join(commands) + sentinel)

    def receive(self, answer, idle_s):
        """All that came before the sentinel's answer, and how it ended."""
        got, self.got = self.got, b""
        self.socket.settimeout(idle_s)
        try:
            while not got.endswith(answer):
                more = self.socket.recv(1 << 20)
                if not more:
                    return got, "closed"
                got += more
        except TimeoutError:
            return got, "waits"
        except ConnectionError:
            return got, "closed"
        return got[: len(got) - len(answer)], "end"

    def close(self):
        """Hangs up."""
        self.socket.close()


class Messages(memc.Reassembly):
    """What the genuine server says to one request, which may be several messages one after another,
    or one of no datagrams."""

    def __init__(self, request_id):
        super().__init__(request_id)
        self.before = b""

    def add(self, datagram):
        """Takes one datagram; says whether that is the end of a message."""
        if datagram[4:6] == bytes(2):
            return False
        if self.total == len(self.parts):
            self.before, self.total, self.parts = self.payload(), None, {}
        return super().add(datagram)

    def payload(self):
        """All messages."""
        return self.before + (super().payload() if self.total else b"")


class Udp:
    """A socket. Each command has a datagram of its own. Servers answer in the order asked: the
    genuine one must have one thread."""

    def __init__(self, server, is_genuine):
        self.client = memc.Udp(server)
        self.reply = Messages if is_genuine else memc.Reassembly
        self.replies = {}

    def send(self, commands, sentinel):
        """A burst of datagrams, and one that tells the end."""
        ids = [self.client.send(command) for command in (*commands, sentinel)]
        self.replies = {request_id: self.reply(request_id) for request_id in ids}

    def receive(self, answer, idle_s):
        """All that was answered, and how it ended."""
        *_, last = replies = list(self.replies.values())
        self.client.socket.settimeout(idle_s)
        end = "end"
        try:
            done = False
            while not done:
                datagram = self.client.socket.recv(65536)
                request_id = int.from_bytes(datagram[:2])
                if request_id not in self.replies:
                    raise memc.Wrong(f"unasked, or answered before: {datagram[:40]!r}")
                done = self.replies[request_id].add(datagram) and request_id == last.request_id
            if last.payload() != answer:
                raise memc.Wrong(f"{last.payload()!r} to the last")
        except TimeoutError:
            end = "waits"
        except memc.Wrong as wrong:
            end = str(wrong)
        return b"".join(reply.payload() for reply in replies[:-1] if reply.total), end

    def close(self):
        """No more."""
        self.client.close()


def push_cut(links, datas, cuts):
    """Sends each link its data, cut at these places, and takes what comes meanwhile."""
    ends = [*cuts, max(map(len, datas))]
    ends = sorted({*ends, *range(PIECE_BYTES, ends[-1], PIECE_BYTES)})
    for start, end in zip([0, *ends], ends):
        for link, data in zip(links, datas):
            link.push(data[start:end])
        if len(ends) > 1:
            time.sleep(PAUSE_S)
            for link in links:
                link.drain()
