#!/usr/bin/env python3
"""Clients that make a server hold memory: requests sent in part, replies that nobody reads, connections with one
byte, all of it again with little address space. Honest clients beside them look at every byte.

    conn_memory.py --server BINARY [--small] [--memcached] [--runs N] [NAME...]    one line each: ok or FAILED

Judged are the server's memory (VmHWM) against -m, --conn-memory and 5 %, beside what an idle server has; the
honest clients' p99 against that of a quiet time in the same run; and that each attacker's connection says in
words what became of it. With --memcached the genuine server is attacked, and nothing but its life is judged.
"""

import argparse
import contextlib
import multiprocessing
import os
import queue
import random
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import time

MB = 1 << 20
ATTACKS = []
HONEST = 4
"""Honest clients, a process for all of them."""
P99_TIMES = 3.0
P99_LEAST_S = 0.02
"""A p99 below that is the scheduler's, on a machine that does other things, too."""
SPACES = ((135, 64, 2_000), (150, 64, 3_000), (170, 64, 6_000), (200, 64, 6_000), (240, 64, 6_000))
SPACES += ((350, 230, 3_000), (385, 260, 6_000), (420, 290, 6_000), (420, 64, 6_000))
"""Address space in MB, -m, and connections. Without clients it takes some 70 MB beside -m."""
LINES = (1_900, 200, 16_000, 60_000)
ACCEPTS_S = 10
"""After the attackers have gone, somebody new is served within that."""


class Failed(Exception):
    """Something was not as it must be."""


def must(condition, why):
    """Raises Failed unless the condition holds."""
    if not condition:
        raise Failed(why)


def attack(function):
    """Marks an attack, named as its function."""
    ATTACKS.append((function.__name__.replace("_", "-"), function))
    return function


def raise_open_files():
    """As many as there may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Server:
    """A server of one's own on a free port."""

    def __init__(self, options, *flags, address_space=None):
        self.options = options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = free.getsockname()
        port = str(self.address[1])
        if options.memcached:
            command = ["memcached", "-l", "127.0.0.1", "-U", "0", "-p", port]
            command += ["-u", "nobody"] if os.geteuid() == 0 else []
        else:
            command = [options.server, "serve", "-l", "127.0.0.1", "-U", "0", "--huge", "off", "-p", port]

        def limit():
            if address_space:
                resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

        self.process = subprocess.Popen(
            [*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=limit
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                with socket.create_connection(self.address, timeout=5) as client:
                    client.sendall(b"version\r\n")
                    must(client.recv(100).startswith(b"VERSION"), "no version")
                break
            except OSError:
                if self.process.poll() is not None:
                    raise Failed(f"did not start: {self.words()}") from None
                must(time.monotonic() < deadline, "did not start in time")
                time.sleep(0.05)
        time.sleep(0.3)
        self.base = self.status("VmRSS")
        limit = self.stats().get("conn_memory_limit")
        self.conn_memory = int(limit or 0)

    def status(self, name):
        """Bytes of a row of /proc/PID/status."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            found = re.search(rf"^{name}:\s+(\d+) kB", status.read(), re.MULTILINE)
        return int(found[1]) * 1024

    def threads(self):
        """How many it has: none is made after the start, when there may be no memory for its stack."""
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def stats(self, client=None):
        """The rows of `stats`, by a connection that is there or a new one."""
        with contextlib.ExitStack() as stack:
            client = client or stack.enter_context(socket.create_connection(self.address, timeout=30))
            client.sendall(b"stats\r\n")
            reply = b""
            while not reply.endswith(b"END\r\n"):
                more = client.recv(1 << 16)
                must(more, "stats: closed")
                reply += more
        rows = (line.split(" ", 2) for line in reply.decode().splitlines() if line.startswith("STAT"))
        return {name: value for _, name, value in rows}

    def words(self):
        """What it said on standard error."""
        with contextlib.suppress(ValueError):
            return self.process.stderr.read().decode(errors="replace")[-2000:]
        return ""

    def must_live(self):
        """Fails when it has ended."""
        must(self.process.poll() is None, f"it ended with {self.process.returncode}: {self.process.returncode is not None and self.words()}")

    def must_fit(self, items_mb):
        """Its memory was never above what it may be. The figures."""
        most = self.status("VmHWM")
        may = self.base + int((items_mb * MB + self.conn_memory) * 1.05)
        told = f"{most / MB:.0f} MB of {may / MB:.0f}"
        must(self.options.memcached or most <= may, f"memory: {told}, {self.base / MB:.0f} of it when idle")
        return told

    def stop(self):
        """Ends it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()


def serving(options, *flags, **more):
    """A server for as long as it is needed."""
    return serving_started(Server(options, *flags, **more))


# --- honest clients ----------------------------------------------------------------------------------


def exchange(client, request, wanted):
    """Sends a request and looks at every byte of the reply. The time it took."""
    begun = time.monotonic()
    client.sendall(request)
    got = bytearray()
    while len(got) < len(wanted):
        more = client.recv(len(wanted) - len(got))
        if not more:
            raise Failed("an honest client's connection was closed")
        got += more
    if got != wanted:
        raise Failed(f"an honest client got {bytes(got[:80])!r} instead of {wanted[:80]!r}")
    return time.monotonic() - begun


def behave(address, phases, told):
    """Sets and gets values of many sizes until the phase is "end". Tells the times of each phase."""
    try:
        chance, times = random.Random(7), {}
        clients = [socket.create_connection(address, timeout=60) for _ in range(HONEST)]
        for client in clients:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        turn = 0
        while phases.value:
            turn += 1
            name = turn % HONEST
            client = clients[name]
            # Most are small. The largest would have to wait for memory if nobody gave any back.
            size = chance.choice((10, 100, 100, 900, 900, 4_000, 4_000, 30_000)) + turn % 7
            value = chance.randbytes(16) * (size // 16 + 1)
            key = b"honest%d" % name
            phase = phases.value
            spent = exchange(client, b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value), b"STORED\r\n")
            spent = max(spent, exchange(client, b"get %s\r\n" % key, b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(value), value)))
            times.setdefault(phase, []).append(spent)
            time.sleep(0.001)
        told.put(times)
    except (Failed, OSError) as e:
        told.put(f"{type(e).__name__}: {e}")


class Honest:
    """Honest clients, in a process of their own."""

    QUIET, ATTACKED = 1, 2

    def __init__(self, server, seconds):
        self.server = server
        self.phases = multiprocessing.Value("i", self.QUIET)
        self.told = multiprocessing.Queue()
        self.process = multiprocessing.Process(target=behave, args=(server.address, self.phases, self.told))
        self.process.start()
        time.sleep(seconds)
        self.phases.value = self.ATTACKED

    def end(self):
        """Judges. The figures."""
        self.phases.value = 0
        try:
            times = self.told.get(timeout=90)
        except queue.Empty:
            raise Failed("the honest clients had no answer for 90 s") from None
        finally:
            self.process.join(5)
            self.process.kill()
        must(isinstance(times, dict), times)

        def p99(phase):
            some = sorted(times.get(phase, []))
            must(len(some) >= 100, f"only {len(some)} honest requests in phase {phase}")
            return some[len(some) * 99 // 100], some[-1]

        (quiet, _), (attacked, longest) = p99(self.QUIET), p99(self.ATTACKED)
        figures = f"p99 {quiet * 1e3:.1f} -> {attacked * 1e3:.1f} ms, longest {longest * 1e3:.0f} ms, {sum(map(len, times.values()))} requests"
        bound = max(P99_TIMES * quiet, P99_LEAST_S)
        must(self.server.options.memcached or attacked <= bound, f"honest clients waited: {figures}")
        return figures


# --- attackers ---------------------------------------------------------------------------------------


class Attacker:
    """A connection that sends what it has to, as far as it is taken."""

    def __init__(self, address, request, small_window=False, patience=20):
        self.socket = socket.socket()
        if small_window:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(patience)
        self.socket.connect(address)
        self.socket.setblocking(False)
        self.request, self.sent, self.got, self.closed = memoryview(request), 0, bytearray(), False

    def send(self, most=1 << 60):
        """Sends on. False when nothing more goes."""
        try:
            while self.sent < min(len(self.request), most):
                self.sent += self.socket.send(self.request[self.sent : min(most, self.sent + (1 << 18))])
        except BlockingIOError:
            return False
        except OSError:
            self.closed = True
        return not self.closed

    def read(self):
        """Reads what there is."""
        try:
            while more := self.socket.recv(1 << 20):
                self.got += more
            self.closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True


def push(attackers, most, seconds, server):
    """All send, in turns, up to so many bytes each and for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        server.must_live()
        for attacker in attackers:
            if not attacker.closed:
                attacker.send(most)
        time.sleep(0.05)


def finish(attackers, seconds, server):
    """All send the rest, the last of which is `version`, and read until that is answered or they are closed."""
    deadline, open_ = time.monotonic() + seconds, list(attackers)
    while open_:
        server.must_live()
        must(time.monotonic() < deadline, f"{len(open_)} connections are stuck, the first after {bytes(open_[0].got[-80:])!r}")
        poll = select.poll()
        for attacker in open_:
            more = attacker.sent < len(attacker.request)
            poll.register(attacker.socket, select.POLLIN | (select.POLLOUT if more else 0))
        poll.poll(100)
        for attacker in open_:
            attacker.send()
            attacker.read()
        open_ = [a for a in open_ if not a.closed and not (a.got.endswith(b"\r\n") and b"VERSION" in a.got[-64:])]


def count(attackers, line):
    """How many have got this line."""
    return sum(line in a.got for a in attackers)


def sets(options, items_mb, item_bytes, connections, part, seconds, *flags):
    """Requests of which a part was sent: the rest waits, or is refused in words and its connection stays."""
    with serving(options, "-m", str(items_mb), *flags) as server:
        honest = Honest(server, seconds)
        body = b"v" * item_bytes
        request = b"set attack 0 0 %d\r\n%s\r\nversion\r\n" % (item_bytes, body)
        attackers = [Attacker(server.address, request) for _ in range(connections)]
        push(attackers, part, seconds, server)
        figures = [server.must_fit(items_mb), honest.end()]
        finish(attackers, 120, server)
        stored, refused = count(attackers, b"STORED"), count(attackers, b"SERVER_ERROR out of memory")
        usable = count(attackers, b"VERSION")
        figures.append(f"{stored} stored, {refused} refused")
        must(stored + refused == connections and usable == connections, f"of {connections}: {figures[-1]}, {usable} usable")
        must(options.memcached or stored > 0, "none was stored")
        figures.append(server.must_fit(items_mb))
        for attacker in attackers:
            attacker.socket.close()
        return ", ".join(figures)


@attack
def partial_sets(options):
    """Sets of 1 MB of which 600 KB come."""
    connections = 200 if options.small else 1_000
    return sets(options, 64, 1_000_000, connections, 600_000, 4 if options.small else 10, "-c", "2000")


@attack
def partial_large_sets(options):
    """The largest items that there may be, of which three quarters come."""
    if options.small:
        return sets(options, 64, 16_000_000, 12, 12_000_000, 4, "-I", "16m")
    return sets(options, 256, 128_000_000, 20, 96_000_000, 15, "-I", "128m")


@attack
def unread_gets(options):
    """Gets of 900 KB, many to a connection, that nobody reads."""
    connections, seconds = (150, 4) if options.small else (900, 10)
    with serving(options, "-m", "64", "-c", "2000") as server:
        value = random.Random(3).randbytes(900_000)
        refusal = b"SERVER_ERROR out of memory writing get response\r\n"
        reply = b"VALUE big 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)
        with socket.create_connection(server.address, timeout=20) as client:
            exchange(client, b"set big 0 0 %d\r\n%s\r\n" % (len(value), value), b"STORED\r\n")
        honest = Honest(server, seconds)
        request = b"get big\r\n" * 20 + b"version\r\n"
        attackers = [Attacker(server.address, request, small_window=True) for _ in range(connections)]
        push(attackers, len(request), seconds, server)
        figures = [server.must_fit(64), honest.end()]
        whole = refused = closed = 0
        for attacker in attackers[:: max(1, connections // 40)]:
            finish([attacker], 60, server)
            got = bytes(attacker.got)
            while got.startswith((reply, refusal)):
                refused += got.startswith(refusal)
                got = got.removeprefix(refusal if got.startswith(refusal) else reply)
            if got.startswith(b"VERSION"):
                whole += 1
            else:
                # Cut off, after so many whole replies, in the midst of one.
                must(attacker.closed and reply.startswith(got), f"a reply is wrong: {got[:100]!r}")
                closed += 1
        figures.append(f"{whole} answered to the end, {refused} refusals, {closed} cut off")
        for attacker in attackers:
            attacker.socket.close()
        return ", ".join(figures)


@attack
def one_byte(options):
    """Connections that send nothing, then one byte, then a hundred."""
    connections = min(3_000 if options.small else 12_000, raise_open_files() - 200)
    with serving(options, "-m", "64", "-c", str(connections + 100)) as server:
        honest = Honest(server, 3)
        before = server.status("VmRSS")
        attackers = [Attacker(server.address, b"g" + b"et " + b"k" * 96) for _ in range(connections)]
        time.sleep(1)
        each = []
        for sent in (0, 1, 100):
            push(attackers, sent, 1, server)
            each.append((server.status("VmRSS") - before) / connections)
        figures = [server.must_fit(64), honest.end()]
        figures.append("bytes a connection: " + ", ".join(f"{n:.0f}" for n in each))
        # Pages that the honest clients' values have taken meanwhile are not the connections'.
        idle, little = (2_048, 2_560) if not options.small else (2_560, 3_072)
        must(options.memcached or (each[0] <= idle and max(each[1:]) <= little), figures[-1])
        for attacker in attackers:
            attacker.socket.close()
        return ", ".join(figures)


class Steady:
    """Clients that were there before the attack, and lose nothing: whole requests, and one in two parts."""

    VALUE = b"honest" * 150

    def __init__(self, server):
        self.whole, self.parts = (socket.create_connection(server.address, timeout=20) for _ in range(2))
        self.left = b""

    def look(self):
        """Sets, gets, and one part of a request, then the other."""
        exchange(self.whole, b"set h 0 0 900\r\n%s\r\n" % self.VALUE, b"STORED\r\n")
        exchange(self.whole, b"get h\r\n", b"VALUE h 0 900\r\n%s\r\nEND\r\n" % self.VALUE)
        if self.left:
            exchange(self.parts, self.left, b"STORED\r\n")
            self.left = b""
        else:
            request = b"set p 0 0 900\r\n%s\r\n" % self.VALUE
            self.parts.sendall(request[:500])
            self.left = request[500:]


def small_server(options, *flags, **more):
    """A server with little address space. For a moment each heap of the C library takes 128 MB of it, and a thread
    that is to start meanwhile does not: then the server does not start, says so, and is started again."""
    for _ in range(10):
        try:
            return serving_started(Server(options, *flags, **more))
        except Failed as e:
            if "cannot start a TCP thread" not in str(e):
                raise
    raise Failed("did not start, ten times")


@contextlib.contextmanager
def serving_started(server):
    """A server that has started, for as long as it is needed."""
    try:
        yield server
    finally:
        server.stop()


def crowd(options, space, items_mb, connections, length):
    """One server with so little address space. The figures."""
    with small_server(options, "-m", str(items_mb), "-c", "8000", address_space=space * MB) as server:
        steady, attackers = Steady(server), []
        threads = server.threads()
        for n in range(connections):
            try:
                attacker = Attacker(server.address, b"get " + b"k " * (length // 2), patience=2)
                attacker.send()
                attackers.append(attacker)
            except TimeoutError:
                # Nothing is accepted any more.
                break
            except OSError:
                pass
            if n % 100 == 0:
                server.must_live()
                steady.look()
        time.sleep(0.5)
        server.must_live()
        steady.look()
        rows = server.stats(steady.whole)
        for attacker in attackers:
            attacker.read()
        closed = sum(a.closed for a in attackers)
        for attacker in attackers:
            attacker.socket.close()
        begun = time.monotonic()
        with socket.create_connection(server.address, timeout=ACCEPTS_S) as client:
            exchange(client, b"get h\r\n", b"VALUE h 0 900\r\n%s\r\nEND\r\n" % Steady.VALUE)
        waited = time.monotonic() - begun
        steady.look()
        steady.look()
        must(server.threads() == threads, f"{threads} threads at the start, {server.threads()} now")
        return closed, int(rows["listen_disabled_num"]), waited


@attack
def address_space(options):
    """Lines sent in part, by more connections than the address space has room for."""
    cases = ((135, 64, 2_000), (350, 230, 3_000)) if options.small else SPACES
    runs = options.runs or (2 if options.small else 10)
    told = []
    for space, items_mb, connections in cases:
        figures = []
        for run in range(runs):
            try:
                figures.append(crowd(options, space, items_mb, connections, LINES[run % len(LINES)]))
            except (Failed, OSError) as e:
                raise Failed(f"{space} MB, -m {items_mb}, {connections} connections, run {run}: {type(e).__name__}: {e}") from e
        closed, pauses, waited = map(max, zip(*figures, strict=True))
        short = sum(f[1] > 0 for f in figures)
        told.append(f"{space} MB, -m {items_mb}: short in {short} of {runs}, most {closed} closed, {pauses} pauses, accepts after {waited:.1f} s")
        # It was about what happens when there is none left.
        must(options.memcached or space > items_mb + 100 or short == runs, told[-1])
    return "; ".join(told)


def main():
    """See the module's text."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default=os.environ.get("GNOMON", "target/release/gnomon"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--memcached", action="store_true")
    parser.add_argument("--runs", type=int, help="of address-space, at each limit")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    raise_open_files()
    failed = 0
    for name, run in ATTACKS:
        if options.names and name not in options.names:
            continue
        try:
            print(f"ok      conn_memory: {name} ({run(options)})", flush=True)
        except (Failed, OSError) as e:
            failed += 1
            print(f"FAILED  conn_memory: {name}: {type(e).__name__}: {e}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
