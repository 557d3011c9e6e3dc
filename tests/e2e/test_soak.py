"""A soak: a live appliance, filled beyond its memory, under a mixed load for a while, over TCP and UDP, with expiry,
eviction, sizes that shift, connections that come and go, and scrapes. Then: has memory grown, is every packet slot
home, are files and threads as many as before, was every value right, is every drop explained? See soak/load.py and
soak/judge.py.

    SOAK_SECONDS=30 SOAK_RATE=150 SOAK_PORTS="sockets af_packet" SOAK_REPORT=DIR scripts/e2e.sh soak --file-seconds 0

Of the rate, in operations a second, load.py and gnomon-replay do as many each. With SOAK_REPORT the reports stay
there, as Markdown and JSON. SOAK_STRICT_TIME=1 makes the drift of p99.9 a check and not a note, for a machine that
does nothing else."""

import os
import pathlib
import re
import shutil
import threading
import time

import pytest
from harness import processes
from harness.namespaces import must, veth_pair
from harness.servers import HERE, TOOLS
from harness.wires import ADDRESSES, AT, CPUS

pytestmark = pytest.mark.beside

SECONDS = int(os.environ.get("SOAK_SECONDS", "30"))
RATE = int(os.environ.get("SOAK_RATE", "150"))
PORTS = os.environ.get("SOAK_PORTS", "sockets af_packet").split()
STRICT = ["--strict-time"] if os.environ.get("SOAK_STRICT_TIME") else []

SETTLE = 15
"""The samples of the load's first seconds are not judged: buffers, allocator arenas and tables that are made once are
there afterwards, and what grows then grows with the load."""

EVERY = SECONDS // 200 + 1
"""Some two hundred samples, and no more than one a second."""

MEGABYTES = 16
METRICS = "127.0.0.1:9150"
SERVE = ("--json", "-m", str(MEGABYTES), "--slots", "4096", "--metrics", METRICS)

# As much again as the memory holds, a part of it asked for often.
TRACE = """--keys 30000 --key-size 16..64 --value-size 64:6,300:3,1000:1 --popularity zipf:0.99 --get-ratio 0.8
    --seed 11211 --requests 50000"""


class Soak:
    """The server behind its port, a client, and the folder with what is measured."""

    def __init__(self, port, namespace, gnomon, folder):
        self.folder = folder
        folder.mkdir()
        self.server = self.client = namespace("server")
        self.target, self.tcp, behind = HERE, "kernel", ()
        if port == "af_packet":
            self.client, self.target, self.tcp = namespace("client"), AT, "worker"
            veth_pair(self.server, self.client)
            self.client.client_addresses("wire1")
            behind = ("--port", "net_af_packet0,iface=wire0,qpairs=1", *ADDRESSES, "--cores", CPUS[-1])
        self.gnomon = gnomon(self.server, *SERVE, *behind)

    def watching(self, out, *args):
        """The command that samples, from the server's namespace, where its metrics are."""
        watch = ("tests/e2e/soak/watch.py", str(self.gnomon.pid), METRICS, "--out", self.folder / out)
        return self.server.argv(*watch, *args)

    def watch(self, out):
        """One sample."""
        return processes.run(*self.watching(out))

    def slap(self, out):
        """A short burst of memcaslap."""
        load = f"timeout 300 memcaslap -v 1.0 -e 0.1 -s {self.target} -T 1 -c 8 -w 1k -x 2000"
        self.client.run(*load.split(), log=self.folder / out)

    def slaps(self):
        """Such bursts until the soak is over."""
        n = 0
        while not (self.folder / "over").exists():
            n += 1
            self.slap(f"slap.{n}")
            processes.wait_for(15, (self.folder / "over").exists)

    def lost_datagrams(self, out):
        """How many the kernels at both ends have lost, by their own count of datagrams in error (no room in a socket
        is one) and of those that could not be sent."""
        lost = 0
        for place in (self.server, self.client):
            fields = re.search(r"^Udp: (\d.*)", place.must("cat", "/proc/net/snmp"), re.MULTILINE)[1].split()
            lost += int(fields[2]) + int(fields[5])
        (self.folder / out).write_text(f"{lost}\n")

    def no_connections(self):
        """Whether the server has seen every client go."""
        now = self.folder.with_suffix(".now")
        now.unlink(missing_ok=True)
        processes.run(*self.watching(now.resolve()))
        return now.exists() and '"connections": 0,' in now.read_text()


@pytest.mark.parametrize("port", PORTS)
def test_soak(check, namespace, gnomon, undo, scratch, port):
    # What gnomon-replay plays.
    trace = scratch / "trace.pcap"
    must(f"{TOOLS}/gnomon-pcapgen", *TRACE.split(), "--out", trace)
    soak = Soak(port, namespace, gnomon, scratch / port)
    folder, seconds = soak.folder, SETTLE + SECONDS
    soak.gnomon.serves(f"{port}: serves", soak.target, soak.client)
    # The first scrape, memcaslap, and connections to every TCP thread make what is made once.
    soak.watch("first")
    soak.slap("slap.0")
    for _ in range(8):
        soak.client.ask(soak.target, "stats")
    time.sleep(1)
    soak.watch("before")

    def start(*argv, log):
        return undo.enter_context(processes.Process(*argv, log=scratch / log))

    loads = f"""tests/e2e/soak/load.py {soak.target} {soak.target} --megabytes {MEGABYTES} --rate {RATE}
        --seconds {seconds} --warm {folder}/warm --json {folder}/load.json"""
    load = start(*soak.client.argv(*loads.split()), log="load")
    processes.wait_for(300, lambda: load.gone() or (folder / "warm").exists())
    if load.gone() or not (folder / "warm").exists():
        check.must(f"{port}: the memory fills", False, load.said())
    soak.lost_datagrams("lost.before")
    # A lost reply is one that does not come in 20 s, however busy the machine.
    plays = f"""{TOOLS}/gnomon-replay --target {soak.target} --rate {RATE} --limit {RATE * seconds}
        --loop {RATE * seconds // 50000 + 1} --timeout-ms 20000 --json {folder}/replay.json {trace}"""
    replay = start(*soak.client.argv(*plays.split()), log="replay")
    slapper = threading.Thread(target=soak.slaps)
    undo.callback(slapper.join)
    undo.callback((folder / "over").touch)
    slapper.start()
    watcher = start(*soak.watching("samples", "--every", str(EVERY), "--until", folder / "over"), log="watcher")
    good = True
    for what, process in (("load", load), ("replay", replay)):
        if status := process.wait():
            good = check(f"{port}: {what} ends well", False, f"exit status {status}\n{process.said()}")
    (folder / "over").touch()
    if status := watcher.wait():
        check(f"{port}: scrapes", False, f"exit status {status}\n{watcher.said()}")
    slapper.join()
    processes.wait_for(20, soak.no_connections)
    soak.watch("after")
    soak.lost_datagrams("lost.after")
    soak.gnomon.stop()
    if not good:
        return
    shutil.copy(soak.gnomon.log, folder / "server")
    reports = pathlib.Path(os.environ.get("SOAK_REPORT") or scratch)
    reports.mkdir(parents=True, exist_ok=True)
    judge = f"--label {port} --report {reports}/soak-{port} --tcp {soak.tcp} --settle {SETTLE}"
    check.counted("tests/e2e/soak/judge.py", folder, *judge.split(), *STRICT)
