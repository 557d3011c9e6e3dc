#!/usr/bin/env python3
"""Clients that make a server hold memory: requests sent in part, replies that nobody reads, connections with one
byte, all of it again with little address space. Honest clients beside them look at every byte.

    conn_memory.py --server BINARY [--small] [--runs N] [--rounds N] [NAME...]    one line each: ok or FAILED

Judged are the server's memory (VmHWM) against -m, --conn-memory and 5 %, beside what an idle server has; the
honest clients' p99 against that of a quiet time in the same run; and that each attacker's connection says in
words what became of it.

Attackers share the machine's CPUs with server and honest clients. Where they come as fast as a CPU makes them, the
scheduler has a part in what honest clients wait for: `flood` judges such a time beside memcached's in the same flood.
"""

import argparse
import contextlib
import multiprocessing
import os
import queue
import random
import resource
import select
import socket
import statistics
import subprocess
import sys
import time
from types import SimpleNamespace

import attack
from attack import Failed, must, until

MB = 1 << 20
ATTACKS = []
HONEST = 4
"""Honest clients, a process for all of them."""
SIZES = (10, 100, 100, 900, 900, 4_000, 4_000, 30_000)
"""Bytes of their values, and up to 22 more."""
P99_TIMES = {"flood": 1.0}
P99_TIMES_MOST = 3.0
P99_LEAST_S = {True: 0.02, False: 0.0}
"""At the small size a p99 below that is the scheduler's, on a machine that does other things, too. At full size the
ratio alone counts: the median of several rounds, each with a quiet time before its attack."""
ROUNDS = {"one-byte": 15}
ROUNDS_LEAST = 5
"""In a second of one-byte connections a round's p99 is that of few requests: 1.0 to 4 times quiet."""
SPACES = ((135, 64, 2_000), (150, 64, 3_000), (170, 64, 6_000), (200, 64, 6_000), (240, 64, 6_000))
SPACES += ((350, 230, 3_000), (385, 260, 6_000), (420, 290, 6_000), (420, 64, 6_000))
"""Address space in MB, -m, and connections. Without clients it takes some 70 MB beside -m."""
LINES = (60_000, 1_900, 16_000, 200)
IDLE_BYTES = 1_024
"""A connection that waits for a request takes no more."""
ACCEPTS_S = 10
"""After the attackers have gone, somebody new is served within that."""


def marked(function):
    """Marks an attack, named as its function."""
    ATTACKS.append((function.__name__.replace("_", "-"), function))
    return function


def raise_open_files():
    """As many as there may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Server(attack.Server):
    """One that is ready, and what it had by then."""

    def __init__(self, options, *flags, address_space=None):
        prefix = ("prlimit", f"--as={address_space}") if address_space else ()
        super().__init__(options, *flags, prefix=prefix, ports=("-p", "-1", "-U", "0"))
        self.options = options

    def __enter__(self):
        super().__enter__()
        try:
            self.at = self.address()
            time.sleep(0.3)
            self.base = self.memory()
            self.conn_memory = int(self.stats()["conn_memory_limit"])
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def memory(self, what="VmRSS"):
        """Resident bytes; `VmHWM` for the most so far."""
        return int(self.memory_mb(what) * MB)

    def threads(self):
        """How many it has: none is made after the start, when there may be no memory for its stack."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def stats(self, client=None):
        """The rows of `stats`, by a connection that is there or a new one."""
        with contextlib.ExitStack() as stack:
            client = client or stack.enter_context(socket.create_connection(self.at, timeout=30))
            client.sendall(b"stats\r\n")
            reply = b""
            while not reply.endswith(b"END\r\n"):
                more = client.recv(1 << 16)
                must(more, "stats: closed")
                reply += more
        rows = (line.split(" ", 2) for line in reply.decode().splitlines() if line.startswith("STAT"))
        return {name: value for _, name, value in rows}

    def must_fit(self, items_mb):
        """Its memory was never above what it may be. The figures."""
        most = self.memory("VmHWM")
        may = self.base + int((items_mb * MB + self.conn_memory) * 1.05)
        told = f"{most / MB:.0f} MB of {may / MB:.0f}"
        must(most <= may, f"memory: {told}, {self.base / MB:.0f} of it when idle")
        return told


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
            size = chance.choice(SIZES) + turn % 7
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

    def __init__(self, address, seconds, waits):
        self.waits = waits
        self.phases = multiprocessing.Value("i", self.QUIET)
        self.told = multiprocessing.Queue()
        self.process = multiprocessing.Process(target=behave, args=(address, self.phases, self.told))
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
        self.waits.append((quiet, attacked))
        return f"p99 {quiet * 1e3:.1f} -> {attacked * 1e3:.1f} ms, longest {longest * 1e3:.0f} ms, {sum(map(len, times.values()))} requests"


def judge_waits(name, options):
    """The rounds' p99 of honest clients: medians. Words for a line."""
    if not options.waits:
        return ""
    quiet, attacked = (statistics.median(times) for times in zip(*options.waits, strict=True))
    ratio = statistics.median(a / q for q, a in options.waits)
    figures = f"honest p99 {quiet * 1e3:.2f} -> {attacked * 1e3:.2f} ms, {ratio:.1f} times (medians of {len(options.waits)})"
    holds = ratio <= P99_TIMES.get(name, P99_TIMES_MOST) or attacked <= P99_LEAST_S[options.small]
    must(holds, f"honest clients waited: {figures}")
    return figures + "; "


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
        server.alive()
        for attacker in attackers:
            if not attacker.closed:
                attacker.send(most)
        time.sleep(0.05)


def finish(attackers, seconds, server):
    """All send the rest, the last of which is `version`, and read until that is answered or they are closed."""
    deadline, open_ = time.monotonic() + seconds, list(attackers)
    while open_:
        server.alive()
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
    with Server(options, "-m", str(items_mb), *flags) as server:
        honest = Honest(server.at, seconds, options.waits)
        body = b"v" * item_bytes
        request = b"set attack 0 0 %d\r\n%s\r\nversion\r\n" % (item_bytes, body)
        attackers = [Attacker(server.at, request) for _ in range(connections)]
        push(attackers, part, seconds, server)
        figures = [server.must_fit(items_mb), honest.end()]
        finish(attackers, 120, server)
        stored, refused = count(attackers, b"STORED"), count(attackers, b"SERVER_ERROR out of memory")
        usable = count(attackers, b"VERSION")
        figures.append(f"{stored} stored, {refused} refused")
        must(stored + refused == connections and usable == connections, f"of {connections}: {figures[-1]}, {usable} usable")
        must(stored > 0, "none was stored")
        figures.append(server.must_fit(items_mb))
        for attacker in attackers:
            attacker.socket.close()
        return ", ".join(figures)


@marked
def partial_sets(options):
    """Sets of 1 MB of which 600 KB come."""
    connections = 200 if options.small else 1_000
    return sets(options, 64, 1_000_000, connections, 600_000, 4 if options.small else 10, "-c", "2000")


@marked
def partial_large_sets(options):
    """The largest items that there may be, of which three quarters come."""
    if options.small:
        return sets(options, 64, 16_000_000, 12, 12_000_000, 4, "-I", "16m")
    return sets(options, 256, 128_000_000, 20, 96_000_000, 15, "-I", "128m")


@marked
def unread_gets(options):
    """Gets of 900 KB, many to a connection, that nobody reads."""
    connections, seconds = (150, 4) if options.small else (900, 10)
    with Server(options, "-m", "64", "-c", "2000") as server:
        value = random.Random(3).randbytes(900_000)
        refusal = b"SERVER_ERROR out of memory writing get response\r\n"
        reply = b"VALUE big 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)
        with socket.create_connection(server.at, timeout=20) as client:
            exchange(client, b"set big 0 0 %d\r\n%s\r\n" % (len(value), value), b"STORED\r\n")
        honest = Honest(server.at, seconds, options.waits)
        request = b"get big\r\n" * 20 + b"version\r\n"
        attackers = [Attacker(server.at, request, small_window=True) for _ in range(connections)]
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


PARTIAL_GET = b"get " + b"k" * 96


@marked
def one_byte(options):
    """Connections that send nothing; others that send one byte, then a hundred."""
    connections = min(3_000 if options.small else 12_000, raise_open_files() - 200)
    with Server(options, "-m", "64", "-c", str(connections + 100)) as server:
        with contextlib.ExitStack() as stack:
            # What grows once has grown: connections, and pages of the sizes that honest clients store.
            client = stack.enter_context(socket.create_connection(server.at, timeout=20))
            for n in range(4_000):
                value = b"v" * SIZES[n % len(SIZES)]
                exchange(client, b"set honest%d 0 0 %d\r\n%s\r\n" % (n % HONEST, len(value), value), b"STORED\r\n")
            for _ in range(200):
                stack.enter_context(socket.create_connection(server.at, timeout=20))
            server.stats()
            before = server.memory()
            for _ in range(connections - 200):
                stack.enter_context(socket.create_connection(server.at, timeout=20))
            time.sleep(1)
            idle = (server.memory() - before) / (connections - 200)
            must(idle <= IDLE_BYTES, f"{idle:.0f} bytes for each idle connection")
        until("gone", lambda: int(server.stats()["curr_connections"]) < 10)
        honest = Honest(server.at, 3, options.waits)
        attackers = [Attacker(server.at, PARTIAL_GET) for _ in range(connections)]
        each = []
        for sent in (1, 100):
            push(attackers, sent, 1, server)
            each.append((server.memory() - before) / connections)
        figures = [server.must_fit(64), honest.end()]
        figures.append(f"bytes a connection: {idle:.0f}, with a byte {each[0]:.0f}, with 100 {each[1]:.0f}")
        # Pages that the honest clients' values have taken meanwhile are not the connections'.
        must(max(each) <= (2_816 if options.small else 2_560), figures[-1])
        for attacker in attackers:
            attacker.socket.close()
        return ", ".join(figures)


@contextlib.contextmanager
def memcached(*flags):
    """One on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        at = free.getsockname()
    command = ("memcached", "-u", "root", "-l", at[0], "-p", str(at[1]), "-U", "0", *flags)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until("memcached listens", lambda: socket.socket().connect_ex(at) == 0)
        yield SimpleNamespace(at=at, alive=lambda: must(process.poll() is None, "memcached has ended"))
    finally:
        process.kill()
        process.wait()


@marked
def flood(options):
    """As one_byte. The time of memcached in the same flood stands for a quiet one."""
    if options.small:
        return "at full size only"
    connections = min(12_000, raise_open_files() - 200)
    flags = ("-m", "64", "-c", str(connections + 100))
    with Server(options, *flags) as server, memcached(*flags) as theirs:
        waits = []
        for flooded in (theirs, server):
            honest = Honest(flooded.at, 3, waits)
            attackers = [Attacker(flooded.at, PARTIAL_GET) for _ in range(connections)]
            for sent in (1, 100):
                push(attackers, sent, 1, flooded)
            figures = honest.end()
            for attacker in attackers:
                attacker.socket.close()
        options.waits.append(tuple(attacked for _, attacked in waits))
        return figures


class Steady:
    """Clients that were there before the attack, and lose nothing: whole requests, and one in two parts."""

    VALUE = b"honest" * 150

    def __init__(self, server):
        self.whole, self.parts = (socket.create_connection(server.at, timeout=20) for _ in range(2))
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


def crowd(options, space, items_mb, connections, length):
    """One server with so little address space. The figures."""
    # More for connections than there is, so that the system refuses and not the account.
    flags = ("-m", str(items_mb), "-c", "8000", "--conn-memory", "256M")
    with Server(options, *flags, address_space=space * MB) as server:
        steady, attackers = Steady(server), []
        threads = server.threads()
        for n in range(connections):
            try:
                attacker = Attacker(server.at, b"get " + b"k " * (length // 2), patience=2)
                attacker.send()
                attackers.append(attacker)
            except TimeoutError:
                # Nothing is accepted any more.
                break
            except OSError:
                pass
            if n % 100 == 0:
                server.alive()
                steady.look()
        time.sleep(0.5)
        server.alive()
        steady.look()
        rows = server.stats(steady.whole)
        for attacker in attackers:
            attacker.read()
        closed = sum(a.closed for a in attackers)
        for attacker in attackers:
            attacker.socket.close()
        begun = time.monotonic()
        with socket.create_connection(server.at, timeout=ACCEPTS_S) as client:
            exchange(client, b"get h\r\n", b"VALUE h 0 900\r\n%s\r\nEND\r\n" % Steady.VALUE)
        waited = time.monotonic() - begun
        steady.look()
        steady.look()
        must(server.threads() == threads, f"{threads} threads at the start, {server.threads()} now")
        return closed, int(rows["listen_disabled_num"]), waited


@marked
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
        must(space > items_mb + 100 or short > 0, told[-1])
    return "; ".join(told)


@marked
def limited_starts(options):
    """Little address space, which is enough: it starts each time."""
    starts = 3 if options.small else 10
    for _ in range(starts):
        with Server(options, "-m", "64", "-c", "8000", address_space=240 * MB) as server:
            server.alive()
    return f"{starts} of {starts} at 240 MB"


def main():
    """See the module's text."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default=os.environ.get("GNOMON", "target/release/gnomon"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--runs", type=int, help="of address-space, at each limit")
    parser.add_argument("--rounds", type=int, help="of the others")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    raise_open_files()
    failed = 0
    for name, run in ATTACKS:
        if options.names and name not in options.names:
            continue
        options.waits = []
        try:
            figures = run(options)
            for _ in range((options.rounds or (1 if options.small else ROUNDS.get(name, ROUNDS_LEAST))) - 1 if options.waits else 0):
                figures = run(options)
            print(f"ok      conn_memory: {name} ({judge_waits(name, options)}{figures})", flush=True)
        except (Failed, OSError) as e:
            failed += 1
            print(f"FAILED  conn_memory: {name}: {type(e).__name__}: {e}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
