"""Drills on the process: signals, threads, limits, files, and clients that behave badly. On kernel
sockets, on the loopback of whatever namespace this runs in."""

import contextlib
import itertools
import os
import pathlib
import random
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

import drill
from drill import Probe, Server, drill as mark, held_up, load, memc, must, probing, until

BASE = ("-m", "64", "--huge", "off")


# --- signals and threads --------------------------------------------------------------------------


@mark("process stopped", "SIGSTOP, two seconds, SIGCONT", "late, never wrong; it logs the pause")
def process_stopped():
    with Server(*BASE).loaded() as server, probing(server.address) as probe:
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(2)
        lost = probe.lost
        os.kill(server.pid, signal.SIGCONT)
        took = Probe(server.address).recovers()
        must(lost > 0, "it went on answering")
        until("the pause is counted", lambda: server.figure("gnomon_control_stalls_total") > 0)
        return f"replies again after {took * 1e3:.0f} ms"


@mark("process stopped amid large replies", "SIGSTOP, longer than any wait, three times, with memory for a few of them", "whole, all of them")
def stopped_amid_large_replies():
    value = b"large " * 150_000
    wanted = memc.hit(b"large", value)
    limits = ("-t", "1", "-c", "40", "--conn-memory", "5448k", "-o", "idle_timeout=1")
    with Server(*BASE, *limits).loaded() as server:
        told = memc.Tcp(server.address).ask(memc.set_command(b"large", value))
        must(told == b"STORED\r\n", f"set: {told!r}")
        over, failed, whole = threading.Event(), [], itertools.count()

        def ask():
            try:
                client = memc.Tcp(server.address, timeout_s=drill.SOON_S)
                while not over.is_set():
                    client.socket.sendall(b"get large\r\n")
                    told = [client.socket.recv(1 << 18)]
                    while told[-1] and not told[0].startswith(b"SERVER_ERROR") and sum(map(len, told)) < len(wanted):
                        told.append(client.socket.recv(1 << 18))
                    told = b"".join(told)
                    must(told == wanted, f"{len(told)} bytes, which begin {told[:60]!r}")
                    next(whole)
            except (OSError, drill.Failed) as error:
                failed.append(str(error))

        clients = [threading.Thread(target=ask) for _ in range(16)]
        for client in clients:
            client.start()
        for _ in range(3):
            time.sleep(0.3)
            os.kill(server.pid, signal.SIGSTOP)
            time.sleep(3.2)
            os.kill(server.pid, signal.SIGCONT)
        time.sleep(0.3)
        over.set()
        for client in clients:
            client.join()
        must(not failed, f"{len(failed)} of {len(clients)} failed: {failed[:1]}")
        return f"{next(whole)} replies of {len(value)} bytes"


@mark("control plane stalled", "its thread is held up for a second", "requests are answered all the while")
def control_stalled():
    with Server(*BASE).loaded() as server, probing(server.address) as probe:
        with held_up(server.pid):
            right = probe.right
            time.sleep(1)
            right = probe.right - right
        must(right > 0, "no replies meanwhile")
        until("the stall is counted", lambda: server.figure("gnomon_control_stalls_total") > 0)
        longest = server.figure("gnomon_control_stall_longest_seconds")
        must(longest >= 0.9, f"{longest} s")
        must("the control plane was stalled" in server.said(), "not in the log")
        return f"{right} replies meanwhile"


@mark("worker stalled", "the only worker is held up for two seconds", "TCP is served; the metrics say which")
def worker_stalled():
    with Server(*BASE, "--cores", drill.one_core()).loaded() as server:
        with held_up(server.threads("worker-0")[0]):
            until("the stall is seen", lambda: server.figure('gnomon_worker_stalled{worker="0"}') == 1)
            drill.ask_all(server.address)
        took = Probe(server.address).recovers()
        until("it is seen to be over", lambda: server.figure("gnomon_worker_stalled") == 0)
        must("a worker is stalled" in server.said(), "not in the log")
        must(server.figure("gnomon_worker_stalls_total") == 1, "not counted once")
        return f"replies again after {took * 1e3:.0f} ms"


@mark("TCP thread stalled", "one of two is held up for a second", "UDP is answered; its connections come after")
def tcp_stalled():
    with Server(*BASE, "-t", "2").loaded() as server, probing(server.address) as probe:
        clients = [memc.Tcp(server.address, timeout_s=drill.SOON_S) for _ in range(8)]
        with held_up(server.threads("tcp-0")[0]):
            right = probe.right
            for client in clients:
                client.socket.sendall(b"get drill:7\r\n")
            time.sleep(1)
            must(probe.right > right, "no replies over UDP")
        wanted = memc.hit(drill.key(7), drill.value(7))
        for client in clients:
            told = b""
            while len(told) < len(wanted):
                told += client.socket.recv(4096)
            must(told == wanted, f"{told[:60]!r}")
        return f"{len(clients)} connections answered"


@mark("kernel socket buffer full", "requests without end at a worker that is held up", "the kernel drops; then all is well")
def socket_buffer_full():
    def dropped():
        for line in pathlib.Path("/proc/net/snmp").read_text().splitlines():
            fields = line.split()
            if fields[0] == "Udp:" and fields[1].isdigit():
                return int(fields[5])
        return 0

    with Server(*BASE, "--cores", drill.one_core()).loaded() as server:
        flood, before = Probe(server.address), dropped()
        with held_up(server.threads("worker-0")[0]):
            for _ in range(50_000):
                flood.send()
                if flood.right + flood.lost == 0 and dropped() > before + 100:
                    break
            must(dropped() > before, "the kernel dropped nothing")
        took = Probe(server.address).recovers()
        while flood.receive(0.2) is not None:
            pass
        return f"{dropped() - before} dropped, {flood.right} late and right, replies again after {took * 1e3:.0f} ms"


@mark("SIGTERM storm", "200 SIGTERM and SIGINT at once, under load", "it ends, drained or at once, and never crashes")
def sigterm_storm():
    ends = []
    for _ in range(3):
        with Server(*BASE).loaded() as server, probing(server.address) as probe:
            until("load", lambda: probe.right > 20)
            for n in range(200):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(server.pid, (signal.SIGTERM, signal.SIGINT)[n % 2])
            status = server.process.wait(drill.SOON_S)
            must(status in (0, 128 + signal.SIGTERM, 128 + signal.SIGINT), f"status {status}: {server.said()[-300:]}")
            ends.append(status)
    return f"statuses {ends}"


@mark("SIGKILL and restart", "killed at random points of a load, five times, and started anew", "old values or misses")
def sigkill_and_restart():
    with memory_file() as path:
        flags = (*BASE, "-e", path)
        took = []
        for _ in range(5):
            with Server(*flags) as server:
                must("kept_items" not in server.ready(), "it kept items of a process that was killed")
                until("TCP", lambda server=server: load(server.address) is None)
                writer = memc.Tcp(server.address)
                deadline = time.monotonic() + random.random() * 0.4
                with probing(server.address):
                    for number in itertools.count():
                        if time.monotonic() > deadline:
                            break
                        writer.ask(memc.set_command(drill.key(number), drill.value(number)))
                    server.kill()
            begun = time.monotonic()
            with Server(*flags) as server:
                server.ready()
                probe = Probe(server.address, may_miss=True)
                probe.recovers()
                took.append(time.monotonic() - begun)
                probe.ask_for(0.2)
                server.kill()
        return f"replies after {max(took) * 1e3:.0f} ms at most"


# --- memory, files, limits --------------------------------------------------------------------------


@mark("out of item memory", "SETs without end with -M and 32 MB", "they are refused; what is there stays right")
def out_of_item_memory():
    with Server("-m", "32", "-M", "--huge", "off").loaded() as server, probing(server.address):
        client = memc.Tcp(server.address)
        refused = stored = 0
        while refused < 100:
            for told in many(client, lambda n: memc.set_command(b"fill%d" % (stored + refused + n), b"x" * 1000)):
                must(told in (b"STORED", b"SERVER_ERROR out of memory storing object"), f"{told!r}")
                refused += told != b"STORED"
                stored += told == b"STORED"
            must(stored < 60_000, "it never ran out")
        drill.ask_all(server.address)
        for first in range(0, stored // 2, 100):
            many(client, lambda n, first=first: b"delete fill%d\r\n" % (first + n))
        until("room again", lambda: client.ask(memc.set_command(b"again", b"x" * 1000)) == b"STORED\r\n")
        return f"{stored} stored, then refused"


def many(client, command):
    """A hundred commands at once, and the line that each is told."""
    client.socket.sendall(b"".join(command(n) for n in range(100)))
    told = b""
    while told.count(b"\r\n") < 100:
        more = client.socket.recv(1 << 16)
        must(more, "closed")
        told += more
    return told.split(b"\r\n")[:100]


@mark("address space limit", "RLIMIT_AS below what -m asks for", "it does not start, and says why")
def address_space_limit():
    with Server("-m", "1024", "--huge", "off", limits=("--as=400000000",)) as server:
        return server.refuses("memory")


@mark("no memory for connections", "RLIMIT_AS lowered while 600 clients send and ask for large values", "theirs are closed; nobody else notices")
def no_memory_for_connections():
    # With an account that has room for all of them, it is the machine's memory that they run out of.
    with Server(*BASE, "--conn-memory", "512m").loaded() as server, probing(server.address) as probe:
        first = memc.Tcp(server.address)
        must(first.ask(memc.set_command(b"large", b"x" * 900_000)) == b"STORED\r\n", "set")
        limits = resource.prlimit(server.pid, resource.RLIMIT_AS)
        pages = int(pathlib.Path(f"/proc/{server.pid}/statm").read_text().split()[0])
        now = pages * os.sysconf("SC_PAGE_SIZE")
        # Allocators have room of their own in there: some 64 MB for each thread.
        resource.prlimit(server.pid, resource.RLIMIT_AS, (now + 1_000_000, limits[1]))
        data = b"get large\r\n" * 20 + b"set large 0 0 900000\r\n" + b"y" * 800_000
        sent = {socket.create_connection(("127.0.0.1", 11211), timeout=drill.SOON_S): 0 for _ in range(600)}
        clients = list(sent)
        for client in clients:
            client.setblocking(False)

        def one_ends():
            for client in select.select([], list(sent), [], 0)[1]:
                try:
                    sent[client] += client.send(data[sent[client] :][:100_000])
                except OSError:
                    sent[client] = len(data)
                if sent[client] == len(data):
                    del sent[client]
            return int(first.stats()["malloc_fails"]) > 0

        until("a connection that ends", one_ends, 60, pause=0)
        right = probe.right
        until("replies over UDP", lambda: probe.right > right + 5)
        ended = int(first.stats()["malloc_fails"])
        resource.prlimit(server.pid, resource.RLIMIT_AS, limits)
        for client in clients:
            client.close()
        load(server.address)
        return f"{ended} connections ended"


@mark("huge pages short", "--huge on with more than there are", "it does not start, and says what to do; else it falls back")
def huge_pages_short():
    free = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    free_mb = 2 * int(free.read_text()) if free.exists() else 0
    with Server("-m", str(free_mb + 64), "--huge", "on") as server:
        said = server.refuses("huge pages")
    with Server("-m", "64").loaded() as server:
        memory = server.events()[0]["item_memory"]
    return f"{said[:60]}...; without the flag items in {memory}"


@mark("port taken", "a second server on the same port", "it does not start; the first does not notice")
def port_taken():
    with Server(*BASE).loaded() as server, probing(server.address):
        with Server(*BASE) as second:
            said = second.refuses("11211")
        return said[:80]


@mark("no room for the warm file", "a file system of 16 MB for -m 64", "it does not start, and says what to do")
def no_room_for_warm_file():
    with small_file_system("16m") as directory, Server(*BASE, "-e", f"{directory}/items") as server:
        return server.refuses("are needed")


@mark("disk full later", "the file system fills up while it serves", "items are kept over a restart all the same")
def disk_full_later():
    with small_file_system("80m") as directory:
        flags = (*BASE, "-e", f"{directory}/items")
        with Server(*flags).loaded() as server:
            with contextlib.suppress(OSError), open(f"{directory}/full", "wb") as full:
                while True:
                    full.write(b"x" * (1 << 20))
            must(shutil.disk_usage(directory).free == 0, "it is not full")
            load(server.address)
            kept = server.stop(signal.SIGUSR1)["kept_items"]
        with Server(*flags) as server:
            must(server.ready()["kept_items"] == kept == drill.KEYS, "not all items were kept")
            drill.ask_all(server.address)
        return f"{kept} items kept"


@mark("corrupt warm file", "a bit turned anywhere, of a value, in front; zeroes; the end cut off", "the items are discarded or right")
def corrupt_warm_file():
    ends = []
    with memory_file() as path:
        for spoil in (one_bit_anywhere, one_bit_of_a_value, one_bit_in_front, cut_short, zeroes_in_the_middle):
            flags = (*BASE, "-e", path)
            pathlib.Path(path).unlink(missing_ok=True)
            with Server(*flags).loaded() as server:
                server.stop(signal.SIGUSR1)
            spoil(path)
            with Server(*flags) as server:
                until("an end or a start", lambda server=server: server.events() or server.process.poll() is not None, 60)
                if not server.events():
                    server.refuses()
                    ends.append("refused")
                    continue
                kept = server.events()[0].get("kept_items")
                probe = Probe(server.address, may_miss=kept is None)
                probe.ask_for(0.3)
                must(probe.right + probe.missed > 0, "no replies")
                ends.append("discarded" if kept is None else "kept")
    return ", ".join(ends)


def turn_bit(path, at):
    """Turns a bit of the byte at this place."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << random.randrange(8)]))


def one_bit_anywhere(path):
    """Of anything, memory that holds nothing included."""
    turn_bit(path, random.randrange(os.path.getsize(path)))


def one_bit_of_a_value(path):
    """Where every bit counts."""
    turn_bit(path, pathlib.Path(path).read_bytes().index(drill.value(150)) + random.randrange(100))


def one_bit_in_front(path):
    """Of what says what the file is."""
    turn_bit(path, random.randrange(8))


def cut_short(path):
    """Takes the last third away."""
    os.truncate(path, os.path.getsize(path) * 2 // 3)


def zeroes_in_the_middle(path):
    """Puts zeroes where items are."""
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 4)
        file.write(bytes(os.path.getsize(path) // 2))


@mark("files run out", "no descriptor left for a connection", "no busy loop, few lines; then connections are taken")
def files_run_out():
    with Server(*BASE, "-t", "1").loaded() as server, probing(server.address) as probe:
        first = memc.Tcp(server.address)
        first.ask(b"version\r\n")
        limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        now = max(map(int, os.listdir(f"/proc/{server.pid}/fd"))) + 1
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (now + 2, limits[1]))
        clients = [socket.create_connection(("127.0.0.1", 11211), timeout=5) for _ in range(30)]
        failures = lambda: int(first.stats()["listen_disabled_num"])
        until("a connection that cannot be taken", lambda: failures() > 0)
        threads = server.threads("tcp-")
        cpu, right = server.cpu_s(threads), probe.right
        time.sleep(2)
        cpu = server.cpu_s(threads) - cpu
        must(cpu < 1, f"{cpu:.2f} s of CPU in 2 s")
        must(probe.right > right, "no replies over UDP")
        lines = server.said().count("cannot accept")
        must(0 < lines <= 6, f"{lines} lines in the log")
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
        for connection in clients:
            connection.close()
        begun = time.monotonic()
        load(server.address)
        return f"{failures()} tries, {cpu * 1e3:.0f} ms of CPU in 2 s, served again after {time.monotonic() - begun:.2f} s"


# --- clients ----------------------------------------------------------------------------------------------


@mark("slow consumers", "twenty clients ask for 90 MB each and read nothing", "others are served; memory stays bounded")
def slow_consumers():
    with Server(*BASE).loaded() as server, probing(server.address):
        client = memc.Tcp(server.address)
        must(client.ask(memc.set_command(b"large", b"x" * 900_000)) == b"STORED\r\n", "set")
        before = server.resident_mb()
        slow = [memc.Tcp(server.address) for _ in range(20)]
        for each in slow:
            each.socket.sendall(b"get large\r\n" * 100)
        time.sleep(1)
        load(server.address)
        grown = server.resident_mb() - before
        must(grown < 150, f"{grown:.0f} MB more memory")
        for each in slow:
            each.close()
        drill.ask_all(server.address)
        return f"{grown:.0f} MB more memory"


@mark("clients that vanish", "500 connections reset in the middle of a request", "others are served; none is left open")
def clients_that_vanish():
    with Server(*BASE).loaded() as server, probing(server.address):
        linger = struct.pack("ii", 1, 0)
        parts = (b"", b"set a 0 0 100\r\nabc", b"get large\r\n" * 50, b"\x80\x01\x00", b"mg")
        for n in range(500):
            client = socket.create_connection(("127.0.0.1", 11211), timeout=5)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.sendall(parts[n % len(parts)])
            client.close()
        client = memc.Tcp(server.address)
        until("all are gone", lambda: client.stats()["curr_connections"] in ("1", "2"))
        return "500 gone"


@mark("connections over the limit", "64 clients where -c allows 16", "the others get an error; then there are free connections")
def connections_over_the_limit():
    with Server(*BASE, "-c", "16").loaded() as server, probing(server.address):
        clients = [socket.create_connection(("127.0.0.1", 11211), timeout=drill.SOON_S) for _ in range(64)]
        told = set()

        def all_are_told():
            for client in select.select(clients, [], [], 0)[0]:
                with contextlib.suppress(ConnectionResetError):
                    if client.recv(100, socket.MSG_PEEK).startswith(b"ERROR Too many open connections"):
                        told.add(client)
            return len(told) >= 48

        until("48 are told", all_are_told)
        for client in clients:
            client.close()
        until("room", lambda: attempt(lambda: drill.ask_all(server.address)))
        return f"{len(told)} told"


def attempt(what):
    """Whether it went well."""
    try:
        what()
    except (OSError, memc.NoReply, drill.Failed):
        return False
    return True


@mark("hanging scrapers", "twelve that send half a request to /metrics and wait", "a thirteenth is served; so are clients")
def hanging_scrapers():
    with Server(*BASE).loaded() as server, probing(server.address) as probe:
        hanging = []
        for _ in range(12):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(drill.SOON_S)
            client.connect(server.metrics)
            client.sendall(b"GET /metr")
            hanging.append(client)
        right, begun = probe.right, time.monotonic()
        must(len(server.figures()) > 100, "no page")
        took = time.monotonic() - begun
        must(probe.right > right or took < 1, "no replies meanwhile")
        for client in hanging:
            client.close()
        return f"served after {took:.1f} s"


@mark("hostile datagrams", "20,000 of random bytes and lengths", "counted by reason; good ones are answered")
def hostile_datagrams():
    with Server(*BASE).loaded() as server, probing(server.address) as probe:
        bad = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        bad.connect(("127.0.0.1", 11211))
        heads = (b"", b"\0", bytes(7), bytes(8), b"\0\1\0\0\0\2\0\0", b"\0\1\0\0\0\1\0\0", b"\xff" * 8)
        for n in range(20_000):
            with contextlib.suppress(OSError):
                bad.send(heads[n % len(heads)] + random.randbytes(random.randrange(0, 1200)))
        until("replies", lambda: probe.right > 20)
        bad.close()
        report = server.stop()
        must(report["dropped"].get("kv_multipart", 0) > 0, f"{report['dropped']}")
        must(report["dropped"].get("kv_frame_short", 0) > 0, f"{report['dropped']}")
        return ", ".join(f"{n} {reason}" for reason, n in report["dropped"].items())


# --- helpers ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def memory_file():
    """A place in memory for a warm file, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="gnomon-drill-", dir="/dev/shm") as directory:
        yield f"{directory}/items"


@contextlib.contextmanager
def small_file_system(size):
    """A file system of this size. In `ip netns exec`, whose mounts are nobody else's."""
    with tempfile.TemporaryDirectory(prefix="gnomon-drill-") as directory:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", directory], check=True)
        try:
            yield directory
        finally:
            subprocess.run(["umount", directory], check=False)
