#!/usr/bin/env python3
"""Ends in the midst of it: what was sent before a signal is answered, no connection is reset, and what has
no reply was not carried out.

    drain.py --server BINARY [--small] [NAME...]
"""

import contextlib
import dataclasses
import select
import selectors
import signal
import socket
import tempfile
import time

from attack import Server, attack, main, memc, memory_file, must, until

CONNECTIONS = 80
COMMANDS = 3000


def connected(address):
    """A socket to host and port, or to a path."""
    if isinstance(address, tuple):
        return socket.create_connection(address, timeout=20)
    client = socket.socket(socket.AF_UNIX)
    client.connect(address)
    return client


class Pipeline:
    """A connection that sends all that it has to, and reads as it comes."""

    def __init__(self, address, request, wanted):
        self.socket = connected(address)
        self.socket.setblocking(False)
        self.request, self.wanted = memoryview(request), wanted
        self.sent, self.got, self.end = 0, bytearray(), None

    def send(self):
        """As much as the kernel takes."""
        with contextlib.suppress(BlockingIOError):
            while self.sent < len(self.request):
                self.sent += self.socket.send(self.request[self.sent : self.sent + (1 << 18)])

    def read(self):
        """What has come. Notes how it ended."""
        with contextlib.suppress(BlockingIOError):
            while more := self.socket.recv(1 << 18):
                self.got += more
            self.end = "closed"

    def step(self, may_send):
        """Both, as far as they go."""
        try:
            if may_send:
                self.send()
            self.read()
        except ConnectionResetError:
            self.end = "reset"
        except BrokenPipeError:
            self.end = "refused"

    def is_right(self):
        """Whether what came is the beginning of what is owed."""
        return self.wanted.startswith(self.got)


def stored(number, n):
    """The value of a pipeline's nth command."""
    return b"%d.%d." % (number, n) * 8


def pipeline(address, number, commands):
    """A pipeline of sets, and of gets of what was set last."""
    request, wanted, last = [], [], None
    for n in range(commands):
        if n % 4 == 3:
            request.append(b"get k%d\r\n" % number)
            wanted.append(memc.hit(b"k%d" % number, last))
        else:
            last = stored(number, n)
            request.append(memc.set_command(b"k%d" % number, last))
            wanted.append(b"STORED\r\n")
    return Pipeline(address, b"".join(request), b"".join(wanted))


def run(pipelines, at=None, then=None, seconds=60):
    """Sends and reads until each has ended; `then` is called once, when `at` bytes have been sent."""
    waiting = selectors.DefaultSelector()
    for each in pipelines:
        waiting.register(each.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, each)
    left, deadline = len(pipelines), time.monotonic() + seconds
    while left:
        must(time.monotonic() < deadline, f"{left} connections are still open")
        for ready, events in waiting.select(0.1):
            each = ready.data
            each.step(events & selectors.EVENT_WRITE)
            if each.end:
                waiting.unregister(each.socket)
                each.socket.close()
                left -= 1
            elif each.sent == len(each.request):
                waiting.modify(each.socket, selectors.EVENT_READ, each)
        if then and sum(each.sent for each in pipelines) >= at:
            then()
            then = None


def judge(pipelines):
    """All of it was answered, rightly, and no connection was reset."""
    wrong = sum(not each.is_right() for each in pipelines)
    must(not wrong, f"{wrong} connections got something else than they asked for")
    ends = {end: sum(each.end == end for each in pipelines) for end in ("reset", "refused")}
    short = [len(each.wanted) - len(each.got) for each in pipelines if len(each.got) < len(each.wanted)]
    must(
        not short and not any(ends.values()),
        f"{ends['reset']} of {len(pipelines)} reset, {ends['refused']} refused, {len(short)} not answered in full"
        + (f", {sorted(short)[len(short) // 2]} bytes of replies missing in the median" if short else ""),
    )


@attack("SIGTERM in the midst of pipelines")
def pipelines(size):
    """80 connections of 3,000 commands each; half of it is sent when the signal comes."""
    took = []
    rounds = size.of(2, 10)
    for _ in range(rounds):
        with Server(size, "-m", "64") as server:
            all_ = [pipeline(server.address(), n, COMMANDS) for n in range(CONNECTIONS)]
            begun = []

            def end(server=server, begun=begun):
                server.end()
                begun.append(time.monotonic())

            run(all_, sum(len(each.request) for each in all_) // 2, end)
            server.stop()
            took.append(time.monotonic() - begun[0])
            judge(all_)
    return f"{rounds} times {CONNECTIONS * COMMANDS} commands answered, no reset, at most {max(took):.2f} s to the end"


@attack("SIGTERM at a server that is held up")
def held_up(size):
    """What lies in the kernel's buffers when the signal comes, of connections that were accepted and of others
    that were not yet."""
    with Server(size, "-m", "64") as server:
        all_ = [pipeline(server.address(), n, 400) for n in range(60)]
        until("they are accepted", lambda: server.connect().stats()["curr_connections"] >= "60")
        server.process.send_signal(signal.SIGSTOP)
        all_ += [pipeline(server.address(), n, 400) for n in range(60, 80)]
        for each in all_:
            each.send()
        unsent = sum(len(each.request) - each.sent for each in all_)
        server.end()
        server.process.send_signal(signal.SIGCONT)
        run(all_)
        judge(all_)
        return f"{len(all_)} connections, 20 of them not accepted yet; {unsent} bytes were still to be sent"


@attack("SIGTERM in the midst of pipelines on a Unix socket")
def unix_socket(size):
    """The same there."""
    with tempfile.TemporaryDirectory(prefix="gnomon-hostile-") as directory:
        path = f"{directory}/socket"
        with Server(size, "-m", "64", "-s", path, ports=()) as server:
            all_ = [pipeline(path, n, COMMANDS) for n in range(CONNECTIONS)]
            run(all_, sum(len(each.request) for each in all_) // 2, server.end)
            server.stop()
            judge(all_)
    return f"{CONNECTIONS * COMMANDS} commands answered"


class Asking:
    """A connection that asks for one thing at a time, for ever."""

    def __init__(self, server, number):
        self.number, self.client = number, memc.Tcp(server.tcp, timeout_s=20)
        self.client.socket.setblocking(False)
        self.version, self.answered, self.buffer, self.end = 0, 0, b"", None

    def ask(self):
        """The next set."""
        self.version += 1
        self.client.socket.send(memc.set_command(b"a%d" % self.number, b"%d" % self.version))

    def read(self):
        """Its reply, and then the next one."""
        try:
            more = self.client.socket.recv(100)
            if not more:
                self.end = "closed"
                return
            self.buffer += more
            must(b"STORED\r\n".startswith(self.buffer), f"a set got {self.buffer!r}")
            if self.buffer == b"STORED\r\n":
                self.answered, self.buffer = self.version, b""
                self.ask()
        except ConnectionResetError:
            self.end = "reset"
        except BrokenPipeError:
            # The end came behind the reply.
            self.end = "closed"


@attack("SIGUSR1 among clients that go on asking")
def asking(size):
    """Each is closed in good order, and what has no reply was not carried out."""
    with memory_file() as items:
        with Server(size, "-m", "64", "-e", items) as server:
            all_ = [Asking(server, n) for n in range(40)]
            waiting = selectors.DefaultSelector()
            for each in all_:
                waiting.register(each.client.socket, selectors.EVENT_READ, each)
                each.ask()
            began, told = time.monotonic(), None
            while any(not each.end for each in all_):
                must(time.monotonic() - began < 30, "connections are still open")
                for ready, _ in waiting.select(0.1):
                    ready.data.read()
                    if ready.data.end:
                        waiting.unregister(ready.data.client.socket)
                        ready.data.client.close()
                if told is None and time.monotonic() - began > 0.5:
                    server.end(signal.SIGUSR1)
                    told = time.monotonic()
            took = time.monotonic() - told
            server.stop()
        resets = sum(each.end == "reset" for each in all_)
        must(not resets, f"{resets} of {len(all_)} reset")
        unanswered = sum(each.version > each.answered for each in all_)
        with Server(size, "-m", "64", "-e", items) as server:
            client = server.connect()
            for each in all_:
                there = client.ask(b"get a%d\r\n" % each.number)
                wanted = memc.hit(b"a%d" % each.number, b"%d" % each.answered)
                must(there == wanted, f"a%d: {there!r}, and {wanted!r} was acknowledged" % each.number)
        must(took < 3, f"it took {took:.1f} s")
        return f"closed after {took:.2f} s; {unanswered} requests unanswered, none of them carried out"


@attack("SIGUSR1 in the midst of pipelines")
def warm(size):
    """Whatever was acknowledged is there after a warm restart."""
    rounds = size.of(1, 5)
    for _ in range(rounds):
        with memory_file() as items:
            with Server(size, "-m", "64", "-e", items) as server:
                all_ = [pipeline(server.address(), n, COMMANDS) for n in range(CONNECTIONS)]
                run(
                    all_,
                    sum(len(each.request) for each in all_) // 2,
                    lambda server=server: server.end(signal.SIGUSR1),
                )
                server.stop()
                judge(all_)
            with Server(size, "-m", "64", "-e", items) as server:
                client = server.connect()
                for n in range(CONNECTIONS):
                    last = max(m for m in range(COMMANDS) if m % 4 != 3)
                    there = client.ask(b"get k%d\r\n" % n)
                    must(there == memc.hit(b"k%d" % n, stored(n, last)), f"k{n}: {there[:60]!r}")
    return f"{rounds} times {CONNECTIONS} connections"


@attack("SIGTERM while some do not read")
def not_reading(size):
    """Who reads gets all; who does not gets what there is room for, is counted, and is not waited for."""
    with Server(size, "-m", "64", "--drain-seconds", "2") as server:
        loader = server.connect()
        value = bytes(range(256)) * 3500
        must(loader.ask(memc.set_command(b"big", value)) == b"STORED\r\n", "set")
        loader.close()
        reply = memc.hit(b"big", value)
        asleep = Pipeline(server.address(), b"get big\r\n" * 50, reply * 50)
        slow = Pipeline(server.address(), b"get big\r\n" * 50, reply * 50)
        asleep.send()
        slow.send()
        until("both are answered", lambda: len(select.select([asleep.socket, slow.socket], [], [], 0.1)[0]) == 2)
        begun = time.monotonic()
        server.end()
        # A quarter of the time that there is.
        while not slow.end and time.monotonic() - begun < 20:
            with contextlib.suppress(BlockingIOError):
                more = slow.socket.recv(1 << 20)
                slow.end = None if more else "closed"
                slow.got += more
            time.sleep(0.002)
        must(slow.end == "closed" and slow.got == slow.wanted, f"slow: {slow.end}, {len(slow.got)} of {len(slow.wanted)} bytes")
        server.stop()
        took = time.monotonic() - begun
        must(1.5 < took < 4.5, f"it ended after {took:.1f} s")
        run([asleep])
        must(asleep.end == "closed", f"who does not read: {asleep.end}")
        must(asleep.is_right(), "who does not read got something else")
        must(len(asleep.got) < len(asleep.wanted), "50 values are no more than the kernel takes")
        must("; 1 cut off, after " in server.said(), f"the log: {server.said()[-300:]}")
        report = server.stop()
        must(report["connections_cut"] == 1, f"{report}")
        return f"{len(slow.got) >> 20} MB and {len(asleep.got) >> 20} MB, at the end after {took:.1f} s"


@attack("SIGTERM within a value that is too large")
def too_large(size):
    """Its rest is waited for, and it is refused then."""
    with Server(size, "-m", "16") as server, connected(server.address()) as client:
        client.sendall(b"set big 0 0 2000000\r\n" + b"v" * 1000)
        time.sleep(0.2)
        server.end()
        time.sleep(0.3)
        client.sendall(b"v" * 1_999_000 + b"\r\n")
        got = b""
        while more := client.recv(1000):
            got += more
        server.stop()
        must(got == b"SERVER_ERROR object too large for cache\r\n", f"{got!r}")
        return "refused when it had come"


@attack("SIGTERM with datagrams in the socket")
def datagrams(size):
    """What the kernel has taken in is answered."""
    with Server(size, "-m", "16") as server:
        must(server.connect().ask(memc.set_command(b"u", b"here")) == b"STORED\r\n", "set")
        client = memc.Udp(server.udp)
        client.ask(b"get u\r\n")
        server.process.send_signal(signal.SIGSTOP)
        asked = {client.send(b"get u\r\n") for _ in range(100)}
        server.end()
        server.process.send_signal(signal.SIGCONT)
        client.socket.settimeout(3)
        answered = set()
        with contextlib.suppress(TimeoutError, ConnectionRefusedError):
            while answered != asked:
                datagram = client.socket.recv(2048)
                must(datagram[8:] == memc.hit(b"u", b"here"), f"{datagram[:60]!r}")
                answered.add(int.from_bytes(datagram[:2], "big"))
        must(answered == asked, f"{len(asked - answered)} of {len(asked)} unanswered")
        return f"{len(asked)} answered"


if __name__ == "__main__":
    main()
