#!/usr/bin/env python3
"""Peers that begin and do not go on: half requests to the metrics, clients that ask and never read, hosts that
are gone.

    hangers.py --server BINARY [--small] [NAME...]
"""

import contextlib
import pathlib
import re
import socket
import subprocess
import sys
import time

from attack import Server, attack, beside, honest, main, memc, must, namespace, until


@attack("half requests to the metrics")
def half_requests(size):
    """A hundred of them, always. A scraper waits for a second at most."""
    with Server(size, "-m", "64", "--metrics", "127.0.0.1:0") as server, honest(server) as client:
        quiet = client.quiet()
        host, _, port = server.events()[0]["metrics"].rpartition(":")
        address, halves, longest = (host, int(port)), [], 0.0
        for _ in range(size.of(3, 20)):
            while len(halves) < 100:
                half = socket.create_connection(address, timeout=10)
                half.sendall(b"GET /metr")
                halves.append(half)
            begun = time.monotonic()
            scraper = socket.create_connection(address, timeout=30)
            scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            page = b""
            while more := scraper.recv(1 << 16):
                page += more
            longest = max(longest, time.monotonic() - begun)
            must(page.startswith(b"HTTP/1.1 200") and b"memcached_up 1" in page, f"the page: {page[:80]!r}")
            # Those that were closed are replaced.
            halves = [half for half in halves if not is_closed(half)]
        for half in halves:
            half.close()
        must(longest <= 1, f"a scraper waited for {longest:.1f} s")
        return f"a scraper waited for {longest * 1e3:.0f} ms at most; {beside(quiet, client.seen())}"


def is_closed(client):
    """Whether the other end has closed it. Closes it then."""
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        with contextlib.suppress(OSError):
            client.recv(1)
        client.close()
        return True
    return False


@attack("clients that ask and never read")
def never_reading(size):
    """They end with idle_timeout, or before it for lack of memory, and their seats and memory come back."""
    count = size.of(30, 200)
    with Server(size, "-m", "64", "-o", "idle_timeout=2", "-c", str(count + 20)) as server, honest(server) as client:
        quiet = client.quiet()
        asker = server.connect()
        must(asker.ask(memc.set_command(b"big", b"b" * 900_000)) == b"STORED\r\n", "set")
        before = server.memory_mb()
        stuck = [socket.create_connection(server.address(), timeout=10) for _ in range(count)]
        for one in stuck:
            one.sendall(b"get big\r\n" * 40)
        held = server.memory_mb("VmHWM") - before
        kicks = ("idle_kicks", "conn_memory_stalled")
        # As many at a time as there is memory for, each for two seconds; who waits for it is not idle.
        # A connection of its own for each look: the first one's patience ends as well.
        stats = lambda: server.connect().stats()
        rounds = count * 900_000 / int(stats()["conn_memory_limit"])
        ended = lambda: sum(int(rows[name]) for rows in [stats()] for name in kicks) >= count
        took = until("they end", ended, 15 + 3 * rounds, 0.1)
        must(int(stats()["curr_connections"]) < 10, "their seats are taken")
        for one in stuck:
            one.close()
        server.alive()
        return f"{count} ended after {took:.1f} s, held {held:.0f} MB; {beside(quiet, client.seen())}"


@attack("turns of many at once")
def turns(size):
    """Always 600 connections with requests for megabytes: who waits for a turn holds no buffer for replies."""
    limit_mb = 16
    with Server(size, "-m", "64", "-c", "700", "-t", "1", "--conn-memory", f"{limit_mb}M") as server:
        asker = server.connect()
        must(asker.ask(memc.set_command(b"k", b"b" * 3000)) == b"STORED\r\n", "set")
        many = [socket.create_connection(server.address(), timeout=10) for _ in range(600)]
        before = server.memory_mb("VmHWM")
        for one in many:
            one.setblocking(False)
            one.send(b"get k\r\n" * 2000)
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s:
            for one in many:
                with contextlib.suppress(BlockingIOError):
                    one.recv(1 << 18)
        grown = server.memory_mb("VmHWM") - before
        must(int(asker.stats()["conn_yields"]) > 600, "nobody waited for a turn")
        must(grown < limit_mb, f"{grown:.0f} MB of {limit_mb}")
        for one in many:
            one.close()
        server.alive()
        return f"{grown:.0f} MB of {limit_mb}"


@attack("hosts that are gone")
def gone_hosts(size):
    """Without a word: keepalive, here of a second, finds them out."""
    with namespace("here") as here, namespace("there") as there:
        run = lambda *command: subprocess.run(command, check=True, capture_output=True)
        run("ip", "-n", here, "link", "add", "h0", "type", "veth", "peer", "name", "h1", "netns", there)
        for where, link, address in ((here, "h0", "10.78.0.1/24"), (there, "h1", "10.78.0.2/24")):
            run("ip", "-n", where, "addr", "add", address, "dev", link)
            run("ip", "-n", where, "link", "set", link, "up")
        for name, value in (("time", 1), ("intvl", 1), ("probes", 2)):
            run("ip", "netns", "exec", here, "sh", "-c", f"echo {value} >/proc/sys/net/ipv4/tcp_keepalive_{name}")
        inside = ("ip", "netns", "exec", here)
        with Server(size, "-m", "16", "-l", "127.0.0.1,10.78.0.1", prefix=inside) as server:
            distant = next(a for a in server.events()[0]["tcp"] if a.startswith("10."))
            memc_py = str(pathlib.Path(memc.__file__))

            def connections():
                said = subprocess.run([*inside, sys.executable, memc_py, "tcp", server.tcp, "stats"], capture_output=True, check=False)
                return int(re.search(rb"curr_connections (\d+)", said.stdout)[1])

            clients = subprocess.Popen(
                ["ip", "netns", "exec", there, sys.executable, "-c", CLIENTS, *distant.rsplit(":", 1)],
                stdin=subprocess.PIPE,
            )
            try:
                until("they come", lambda: connections() == 21, pause=0.1)
                run("ip", "-n", there, "link", "set", "h1", "down")
                took = until("they are found out", lambda: connections() == 1, 15, 0.2)
            finally:
                clients.stdin.close()
                clients.wait(10)
            return f"20 gone, found out after {took:.1f} s"


CLIENTS = """
import socket, sys
clients = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(20)]
for client in clients:
    client.sendall(b"get a\\r\\n")
sys.stdin.read()
"""


if __name__ == "__main__":
    main()
