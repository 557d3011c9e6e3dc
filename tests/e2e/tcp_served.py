#!/usr/bin/env python3
"""What the service promises of TCP holds where workers serve it: who may, what is told of clients, a restart
that keeps the items, the end. Each check has a server of its own behind the veth cable.

    tcp_served.py SERVER_NAMESPACE         runs in the client's namespace

Prints `ok NAME` or `FAILED NAME: why` per check, and exits 1 if any failed.
"""

import contextlib
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "drills"))
import drill
from drill import GNOMON, Server, memc, must, until

ADDRESS = ("10.77.0.1", 11211)
TEXT = "%s:%d" % ADDRESS
CHECKS = []


def check(name):
    """Registers a check."""
    return lambda function: CHECKS.append((name, function)) or function


def serving(*flags):
    """A server at the other end of the cable."""
    return Server(
        *("--port", "net_af_packet0,iface=wire0", "--ip", "10.77.0.1/24", "--tcp", "worker"),
        *("-m", "64", "--huge", "off", "--cores", drill.one_core(), *flags),
        ns=sys.argv[1],
        address=TEXT,
    )


def connect(timeout_s=10):
    return socket.create_connection(ADDRESS, timeout_s)


def connected(server):
    """A connection as soon as the server takes one."""
    server.ready()
    clients = []

    def taken():
        with contextlib.suppress(OSError):
            clients.append(connect(1))
        return clients

    until("the wire carries", taken)
    clients[0].settimeout(10)
    return clients[0]


def say(client, request, reply):
    """All of a reply, and nothing else."""
    client.sendall(request)
    got = b""
    while len(got) < len(reply) and (more := client.recv(1 << 16)):
        got += more
    must(got == reply, f"{request!r:.60}: {got!r:.200}")


def page(client, request):
    """A reply that ends in END."""
    client.sendall(request)
    got = b""
    while not got.endswith(b"END\r\n"):
        more = client.recv(1 << 16)
        must(more, f"closed after {got!r:.200}")
        got += more
    return got.decode()


def rest(client):
    """All up to the end of the stream."""
    got = b""
    while more := client.recv(1 << 16):
        got += more
    return got


@contextlib.contextmanager
def authenticating(*flags):
    """A server for one user."""
    with tempfile.NamedTemporaryFile("w", prefix="gnomon-users-") as users:
        users.write("ann:secret\n")
        users.flush()
        with serving("-Y", users.name, *flags) as server:
            yield server


@check("-Y: only who has authenticated is served, and nobody over UDP")
def auth():
    with authenticating() as server:
        client = connected(server)
        say(client, b"get a\r\n", b"CLIENT_ERROR unauthenticated\r\n")
        wrong = connect()
        say(wrong, b"set x 0 0 9\r\nann wrong\r\n", b"CLIENT_ERROR authentication failure\r\n")
        say(client, b"set x 0 0 10\r\nann secret\r\n", b"STORED\r\n")
        say(client, b"set a 0 0 1\r\n1\r\nget a\r\n", b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n")
        with contextlib.suppress(memc.NoReply, OSError):
            memc.Udp(TEXT).ask(b"get a\r\n")
            must(False, "it answers over UDP")


def packet(opcode, key=b"", value=b"", status=0, magic=0x80):
    """One of the binary protocol; a response has magic 0x81."""
    head = struct.pack(">BBHBBHIIQ", magic, opcode, len(key), 0, 0, status, len(key) + len(value), 7, 0)
    return head + key + value


@check("-S: the same by SASL")
def sasl():
    auth, get = 0x21, packet(0x00, b"k")
    with authenticating("-S") as server:
        client = connected(server)
        refused = packet(auth, value=b"Auth failure.", status=0x20, magic=0x81)
        say(client, packet(auth, b"PLAIN", b"\0ann\0wrong"), refused)
        let_in = packet(auth, value=b"Authenticated", magic=0x81)
        missed = packet(0x00, value=b"Not found", status=1, magic=0x81)
        say(client, packet(auth, b"PLAIN", b"\0ann\0secret") + get, let_in + missed)
        stranger = connect()
        stranger.sendall(get)
        must(rest(stranger) == packet(0x00, value=b"Auth failure.", status=0x20, magic=0x81), "a stranger")


@check("stats conns, stats latency, watch and captures know the connection")
def known():
    with serving() as server:
        client = connected(server)
        say(client, b"set a 0 0 1\r\n1\r\n", b"STORED\r\n")
        own = "tcp:%s:%d" % client.getsockname()
        must(own in page(client, b"stats conns\r\n"), "not in stats conns")
        watcher = connect()
        say(watcher, b"watch fetchers\r\n", b"OK\r\n")
        trace = pathlib.Path(server.scratch.name, "trace.pcapng")
        command = [GNOMON, "capture", "--socket", server.metrics, "--write", str(trace)]
        capture = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while "capturing" not in (line := capture.stderr.readline()):
            must(line, "no capture")
        for _ in range(20):
            say(client, b"get a\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n")
        seen = b""
        while seen.count(b"key=a ") < 20:
            seen += watcher.recv(1 << 16)
        capture.send_signal(signal.SIGINT)
        must(capture.wait(10) == 0, "the capture fails")
        shown = ["tshark", "-r", str(trace), "-Y", 'tcp.payload contains "get a"', "-T", "fields", "-e", "tcp.srcport"]
        ports = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.split()
        must(ports == [str(client.getsockname()[1])] * 20, f"captured: {ports}")
        latency = page(client, b"stats latency\r\n")
        must("tcp" in latency and "udp" not in latency, latency[:300])
        must(server.figure("gnomon_worker_tcp_segments_total") > 20, "no segments counted")


@check("a restart keeps the items")
def restart():
    with tempfile.TemporaryDirectory(prefix="gnomon-kept-", dir="/dev/shm") as kept:
        flags = ("-e", f"{kept}/items")
        with serving(*flags) as server:
            say(connected(server), b"set a 7 0 4\r\nkept\r\n", b"STORED\r\n")
            must(server.stop(signal.SIGUSR1)["kept_items"] == 1, "not kept")
        with serving(*flags) as server:
            say(connected(server), b"get a\r\n", b"VALUE a 7 4\r\nkept\r\nEND\r\n")


@check("the end: what came is answered, the rest of a request is waited for, and then comes the end of the stream")
def drain():
    with serving("--drain-seconds", "5") as server:
        clients = [connected(server), connect(), connect(), connect()]
        whole, part, idle, deaf = clients
        for client in clients:
            say(client, b"mn\r\n", b"MN\r\n")
        whole.sendall(b"mn\r\n" * 5000)
        part.sendall(b"set a 0 0 5\r\nhe")
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        part.sendall(b"llo\r\n")
        must(rest(whole) == b"MN\r\n" * 5000, "replies are missing")
        must(rest(part) == b"STORED\r\n", "the rest of a request was not waited for")
        must(rest(idle) == b"" == rest(deaf), "not ended in order")
        for client in clients:
            client.close()
        began = time.monotonic()
        # It has been told; to be told twice would end it at once.
        server.stop(0)
        must(time.monotonic() - began < 3, "it takes too long")


@check("the end: a client that takes nothing does not hold it up for longer than --drain-seconds")
def deaf_client():
    with serving("--drain-seconds", "2") as server:
        deaf = connected(server)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        say(deaf, b"set a 0 0 500000\r\n" + b"a" * 500_000 + b"\r\n", b"STORED\r\n")
        deaf.sendall(b"get a\r\n" * 50)
        time.sleep(0.2)
        began = time.monotonic()
        server.stop()
        took = time.monotonic() - began
        must(1.5 < took < 4.5, f"it ends after {took:.1f} s")


def main():
    """Every check in its order."""
    failed = 0
    for name, function in CHECKS:
        try:
            function()
        except (drill.Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
            failed += 1
            print(f"FAILED  {name}: {type(e).__name__}: {e}", flush=True)
            continue
        print(f"ok      {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
