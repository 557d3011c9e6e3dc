"""What the attacks share: a server, honest clients beside it that look at every byte, and how a file of
attacks is run.

A file of attacks marks functions with `@attack(NAME)` and ends in `attack.main()`. Each gets `Size` and
brings its attack about; it raises `Failed` when something is not as it must be, and returns a few words
for its line.

    FILE.py --server BINARY [--small] [NAME...]     one line each: `ok      NAME (...)` or `FAILED  NAME: why`
"""

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))
import memc
from served import SOON_S, Failed, Served, must, until

ATTACKS = []


class Skipped(Exception):
    """It cannot be done here."""


@dataclasses.dataclass(frozen=True)
class Size:
    """How much of it."""

    server: str
    small: bool

    def of(self, small, full):
        """The one or the other."""
        return small if self.small else full


def attack(name):
    """Marks an attack."""

    def mark(function):
        ATTACKS.append((name, function))
        return function

    return mark


def main():
    """Runs the attacks that are known by now, or those of the names given. Ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default=os.environ.get("GNOMON", "target/release/gnomon"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    size, failed = Size(str(pathlib.Path(asked.server).resolve()), asked.small), 0
    for name, function in ATTACKS:
        if asked.names and name not in asked.names:
            continue
        begun = time.monotonic()
        try:
            said = function(size)
            print(f"ok      hostile: {name} ({said}; {time.monotonic() - begun:.1f} s)", flush=True)
        except Skipped as why:
            print(f"skipped hostile: {name}: {why}", flush=True)
        except (Failed, OSError, memc.NoReply, memc.Wrong, subprocess.SubprocessError) as why:
            failed += 1
            print(f"FAILED  hostile: {name}: {why or type(why).__name__}", flush=True)
    sys.exit(1 if failed else 0)


# --- the server ---------------------------------------------------------------------------------------


class Server(Served):
    """One on free loopback ports, which is ready."""

    def __init__(self, size, *flags, prefix=(), ports=("-p", "-1", "-U", "-1")):
        super().__init__(size.server, *ports, *flags, prefix=prefix)

    def own_flags(self):
        return ("-v", "--huge", "off")

    def __enter__(self):
        try:
            ready = self.ready()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        self.tcp = next(iter(ready["tcp"]), None)
        self.udp = next(iter(ready["udp"]), None)
        return self

    def address(self, transport="tcp"):
        """Host and port."""
        return memc.address(self.tcp if transport == "tcp" else self.udp)[1][:2]

    def connect(self, **how):
        """A connection."""
        return memc.Tcp(self.tcp, **how)

    def memory_mb(self, what="VmRSS"):
        """Resident memory; `VmHWM` for the most so far."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"^{what}:\s+(\d+) kB", status, re.MULTILINE)[1]) / 1024


@contextlib.contextmanager
def memory_file():
    """A place in memory for a file of `-e`, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="gnomon-hostile-", dir="/dev/shm") as directory:
        yield str(pathlib.Path(directory, "items"))


@contextlib.contextmanager
def namespace(name):
    """A network namespace with its loopback up, removed at the end. Its name."""
    name = f"gnomon-{os.getpid()}-{name}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Skipped(f"no network namespaces here: {made.stderr.strip()}")
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


# --- honest clients -----------------------------------------------------------------------------------


KEYS = 400


def key(number):
    """The name of a key that only honest clients use."""
    return b"honest:%d" % number


def value(number, version):
    """The value that a key has, and never another: 9 to 1,200 bytes."""
    text = b"<%d.%d>" % (number, version)
    return text * (1 + (number * 7 + version) % (1200 // len(text)))


def _serve_honestly(tcp, udp, tell):
    """Asks again and again, over TCP and UDP, until told to stop: (seconds per request, lost, wrong)."""
    client, chance = memc.Tcp(tcp, timeout_s=SOON_S), random.Random(7)
    datagrams = memc.Udp(udp) if udp else None
    versions = dict.fromkeys(range(KEYS), 0)
    took, lost, wrong = [], 0, []
    for number in versions:
        told = client.ask(memc.set_command(key(number), value(number, 0)))
        if told != b"STORED\r\n":
            wrong.append(f"set: {told[:60]!r}")
    tell.send("loaded")
    while True:
        if tell.poll():
            if tell.recv() == "stop":
                return
            tell.send((took, lost, wrong))
            took, lost, wrong = [], 0, []
        number, kind = chance.randrange(KEYS), chance.random()
        begun = time.perf_counter()
        try:
            if kind < 0.2:
                versions[number] += 1
                told, wanted = client.ask(memc.set_command(key(number), value(number, versions[number]))), b"STORED\r\n"
            else:
                asked = datagrams if datagrams and kind < 0.6 else client
                told, wanted = asked.ask(b"get %s\r\n" % key(number)), memc.hit(key(number), value(number, versions[number]))
        except memc.NoReply as why:
            # A datagram may get lost; a connection may not.
            if kind < 0.2 or kind >= 0.6 or not datagrams:
                wrong.append(f"TCP: {why}")
                tell.send((took, lost, wrong))
                return
            lost += 1
            continue
        except (OSError, memc.Wrong) as why:
            wrong.append(str(why))
            continue
        took.append(time.perf_counter() - begun)
        if told != wanted:
            wrong.append(f"WRONG for {key(number)!r}: {told[:60]!r}")
        time.sleep(0.0005)


@dataclasses.dataclass
class Seen:
    """What an honest client saw over some time."""

    took: list
    lost: int

    def at(self, share):
        """Milliseconds below which that share of its requests stayed."""
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3 if ordered else float("inf")


class Honest:
    """A client in a process of its own, which reads and writes and looks at every byte."""

    def __init__(self, server, udp=True):
        self.end, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(
            target=_serve_honestly, args=(server.tcp, server.udp if udp else None, theirs), daemon=True
        )
        self.process.start()
        must(self.end.poll(SOON_S) and self.end.recv() == "loaded", "the honest client cannot begin")

    def seen(self, some=True):
        """What it saw since it was asked last, which must be something. A wrong byte fails the attack."""
        self.end.send("tell")
        must(self.end.poll(SOON_S), "the honest client waits for an answer")
        took, lost, wrong = self.end.recv()
        must(not wrong, f"honest client: {len(wrong)} wrong, first: {wrong[0] if wrong else ''}")
        must(took or not some, "honest client: nothing was answered")
        return Seen(took, lost)

    def quiet(self, seconds=0.5):
        """What it sees while nothing else happens."""
        self.seen(some=False)
        time.sleep(seconds)
        return self.seen()

    def close(self):
        """Ends it."""
        with contextlib.suppress(OSError):
            self.end.send("stop")
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()


@contextlib.contextmanager
def honest(server, udp=True):
    """An honest client for as long as the block; it is judged once more at its end."""
    client = Honest(server, udp)
    try:
        yield client
        client.seen(some=False)
    finally:
        client.close()


def beside(quiet, attacked):
    """Both p99, for a line."""
    lost = f", {attacked.lost} datagrams lost" if attacked.lost else ""
    return f"honest p99 {quiet.at(0.99):.1f} ms quiet, {attacked.at(0.99):.1f} ms attacked{lost}"


def reset_on_close(client):
    """A close of this socket resets the connection."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
