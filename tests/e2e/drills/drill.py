"""What the fault drills share: servers, clients that look at every byte, threads that are held up.

A drill is a function with the mark `@drill`. It brings the fault about, raises `Failed` when
something is not as it must be, and returns a few words for its line. Whatever it does, the server
must end on SIGTERM with status 0, which it does only when all packets are accounted for (D10) and every slot is
back in the pool.
"""

import contextlib
import ctypes
import errno
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import memc
from served import SOON_S, Failed, Served, must, until

GNOMON = os.environ.get("GNOMON", "target/release/gnomon")
STRICT = os.environ.get("DRILLS_STRICT_TIME") == "1"
"""Whether the first try must keep its bound."""
TRIES = 3

HEADER = struct.Struct("!HHHH")
KEYS = 200
DRILLS = []


def drill(name, fault, holds):
    """Marks a drill: its name, what is done, and what must hold beside what holds for all."""

    def mark(function):
        DRILLS.append((name, fault, holds, function))
        return function

    return mark


def in_time(what, bound_s, once):
    """Seconds until recovery, as `once` brings the fault about and measures them. A bound is for the
    server: on a busy machine one try in three may wait for a CPU, a server that is slow to recover is
    slow each time. So the best of three is judged; the first alone when it is asked for."""
    tries = []
    while not tries or (tries[-1] > bound_s and len(tries) < (1 if STRICT else TRIES)):
        tries.append(once())
    told = ", ".join(f"{took * 1e3:.0f}" for took in tries)
    must(min(tries) <= bound_s, f"{what}: {told} ms, and {bound_s * 1e3:.0f} are allowed")
    return min(tries)


# --- values -----------------------------------------------------------------------------------------


def key(number):
    """The name of a key."""
    return b"drill:%d" % (number % KEYS)


def value(number):
    """The value that a key has, and never another. Up to 1,300 bytes, one datagram."""
    number %= KEYS
    return (b"<%d>" % number) * (1 + number * 6 // 5)


def load(address, source=None):
    """Stores every value, over TCP, and looks."""
    client = memc.Tcp(address, source)
    for number in range(KEYS):
        told = client.ask(memc.set_command(key(number), value(number)))
        must(told == b"STORED\r\n", f"set: {told!r}")
    client.close()
    ask_all(address)


def ask_all(address):
    """Gets every key over TCP."""
    client = memc.Tcp(address)
    for number in range(KEYS):
        told = client.ask(b"get %s\r\n" % key(number))
        must(told == memc.hit(key(number), value(number)), f"{key(number)!r}: {told[:60]!r}")
    client.close()


class Probe:
    """Asks over UDP again and again. Every reply, however late, must be the one to its request."""

    def __init__(self, address, may_miss=False):
        family, self.address = memc.address(address)
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.connect(self.address)
        self.may_miss = may_miss
        self.asked = {}
        self.next = random.randrange(1 << 16)
        self.right = self.lost = self.missed = 0

    def send(self):
        """Asks for the next key and says by which id."""
        self.next = (self.next + 1) & 0xFFFF
        self.asked[self.next] = self.next
        with contextlib.suppress(OSError):
            self.socket.send(HEADER.pack(self.next, 0, 1, 0) + b"get %s\r\n" % key(self.next))
        return self.next

    def receive(self, seconds):
        """The id of one reply, looked at; None when there is none."""
        self.socket.settimeout(max(seconds, 0.001))
        try:
            datagram = self.socket.recv(65536)
        except OSError:
            return None
        number, seq, total, reserved = HEADER.unpack_from(datagram)
        text = datagram[HEADER.size :]
        must((seq, total, reserved) == (0, 1, 0), f"frame header {number} {seq} {total} {reserved}")
        must(number in self.asked, f"a reply to {number}, which nobody asked")
        if text == b"END\r\n" and self.may_miss:
            self.missed += 1
            return number
        must(text == memc.hit(key(number), value(number)), f"WRONG VALUE for {key(number)!r}: {text[:60]!r}")
        self.right += 1
        return number

    def ask(self, seconds=0.25):
        """One request. Whether its reply came in time."""
        wanted = self.send()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            got = self.receive(left)
            if got == wanted:
                return True
        self.lost += 1
        return False

    def ask_for(self, seconds):
        """Asks for so long, and says how many came right and how many did not."""
        right, lost, deadline = self.right, self.lost, time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.ask()
        return self.right - right, self.lost - lost

    def recovers(self):
        """Waits until replies come again, ten in a row. Seconds until the first of them."""
        begun, row, first = time.monotonic(), 0, 0.0
        while row < 10:
            must(time.monotonic() - begun < SOON_S, f"no replies within {SOON_S:.0f} s")
            if self.ask(0.1):
                first = first if row else time.monotonic() - begun
                row += 1
            else:
                row = 0
        return first

    def close(self):
        """Closes the socket."""
        self.socket.close()


@contextlib.contextmanager
def probing(address, **how):
    """Asks on a thread of its own meanwhile. A wrong reply fails the drill at the end."""
    probe, stop, wrong = Probe(address, **how), threading.Event(), []

    def run():
        try:
            while not stop.is_set():
                probe.ask()
        except Failed as why:
            wrong.append(why)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield probe
    finally:
        stop.set()
        thread.join()
        probe.close()
    if wrong:
        raise wrong[0]


# --- servers ------------------------------------------------------------------------------------------


class Server(Served):
    """One that ends with the drill."""

    ADDRESS = "127.0.0.1:11211"

    def __init__(self, *flags, ns=None, address=ADDRESS, limits=(), env=None):
        self.address = address
        prefix = [] if ns is None else ["ip", "netns", "exec", ns]
        if limits:
            prefix += ["prlimit", *limits]
        super().__init__(GNOMON, *flags, prefix=prefix, env=env)

    def own_flags(self):
        self.metrics = f"{self.scratch.name}/metrics"
        return ("--metrics", f"unix:{self.metrics}")

    def loaded(self):
        """Ready, and every key has its value. Where that fails, it ends."""
        try:
            self.ready()
            load(self.address)
        except BaseException:
            self.kill()
            raise
        return self

    def refuses(self, *words):
        """It does not start, says why in words, and ends in good order."""
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Failed("it neither serves nor ends") from None
        said = self.said().strip()
        must(status == 1, f"status {status}: {said[-300:]}")
        must(all(word in said for word in words), f"it says: {said[-300:]}")
        return said.splitlines()[-1]

    def figures(self):
        """All metrics, by name with labels."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(SOON_S)
        client.connect(self.metrics)
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: drill\r\nConnection: close\r\n\r\n")
        page = b""
        while more := client.recv(1 << 16):
            page += more
        client.close()
        lines = page.decode().partition("\r\n\r\n")[2].splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(number) for name, _, number in pairs}

    def figure(self, name):
        """The sum of a metric's samples."""
        return sum(n for k, n in self.figures().items() if k == name or k.startswith(name + "{"))

    def threads(self, prefix):
        """Numbers of its threads whose names begin so."""
        tasks = pathlib.Path(f"/proc/{self.pid}/task").iterdir()
        return sorted(int(t.name) for t in tasks if (t / "comm").read_text().startswith(prefix))

    def cpu_s(self, threads):
        """Seconds of CPU time that these threads have taken."""
        total = 0
        for tid in threads:
            fields = pathlib.Path(f"/proc/{self.pid}/task/{tid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def resident_mb(self):
        """Memory that it has."""
        pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def one_core():
    """The first CPU that we may use, as --cores takes it."""
    return str(min(os.sched_getaffinity(0)))


# --- threads that are held up ----------------------------------------------------------------------------

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_LIBC.ptrace.restype = ctypes.c_long
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000


@contextlib.contextmanager
def held_up(tid):
    """Holds up one thread and no other, as a debugger would."""

    def ptrace(request):
        if _LIBC.ptrace(request, tid, None, None) < 0:
            number = ctypes.get_errno()
            raise Failed(f"ptrace: {errno.errorcode.get(number, number)}")

    ptrace(SEIZE)
    ptrace(INTERRUPT)
    os.waitpid(tid, WALL)
    try:
        yield
    finally:
        ptrace(DETACH)
