#!/usr/bin/env python3
"""What administrators are told: the same of memcached and of gnomon after the same conversation.

    told.py GENUINE OURS        addresses as HOST:PORT, TCP and UDP on both

Compares counters of `stats`, the names of its lines and their order, the lines that `watch` gives for
each command, and what `stats conns` says of UDP sockets. Both servers are flushed. Prints `ok NAME`
or `FAILED NAME: why`, and exits 1 if any failed.
"""

import re
import struct
import sys
import time

import memc
from memc import set_command

SETX = struct.pack("!II", 0, 0)
# Counters that depend on nothing but what was said. Those left out count bytes of memory, time, or
# what goes on behind the clients' backs.
COUNTED = """cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses delete_misses delete_hits
incr_misses incr_hits decr_misses decr_hits cas_misses cas_hits cas_badval touch_hits touch_misses
store_too_large store_no_memory auth_cmds auth_errors total_connections rejected_connections
curr_connections evictions conn_yields listen_disabled_num log_watchers""".split()
# Of each size class: summed over the classes, which are not of the same sizes. `cmd_set` is left out:
# a bad data block is of no class here.
BY_CLASS = "get_hits delete_hits incr_hits decr_hits cas_hits cas_badval touch_hits".split()


def binary(opcode, key=b"", value=b"", extras=b"", cas=0):
    """A request of the binary protocol."""
    body = extras + key + value
    return struct.pack("!BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, len(body), 7, cas) + body


def count(opcode, key, delta, initial, exptime):
    """A binary increment or decrement."""
    return binary(opcode, key, extras=struct.pack("!QQI", delta, initial, exptime))


ASCII = [
    set_command(b"a", b"1"),
    set_command(b"a", b"2"),
    b"get a\r\n",
    b"get a none nobody\r\n",
    b"gets a\r\n",
    set_command(b"b", b"abc", exptime=100),
    b"add b 0 0 1\r\nx\r\n",
    b"add c 0 0 1\r\nx\r\n",
    b"replace c 0 0 1\r\nx\r\n",
    b"replace none 0 0 1\r\nx\r\n",
    b"append c 0 0 1\r\nx\r\n",
    b"append none 0 0 1\r\nx\r\n",
    b"prepend c 0 0 1\r\nx\r\n",
    b"cas a 0 0 1 0\r\n5\r\n",
    b"cas none 0 0 1 1\r\n5\r\n",
    b"incr a 1\r\n",
    b"incr none 1\r\n",
    b"incr b 1\r\n",
    b"decr a 1\r\n",
    b"decr none 1\r\n",
    b"touch a 100\r\n",
    b"touch none 1\r\n",
    b"gat 0 a none\r\n",
    b"gats 0 none a\r\n",
    b"delete c\r\n",
    b"delete c\r\n",
    b"set bad 0 0 2\r\nxxxxx\r\n",
    b"append a 0 0 2\r\nxxxxx\r\n",
    b"ms bad 2\r\nxxxxx\r\n",
    b"nonsense\r\n",
    b"get " + b"k" * 251 + b"\r\n",
    b"mg a v\r\n",
    b"mg none v\r\n",
    b"mg made N60 v\r\n",
    b"mg a T0 v\r\n",
    b"ms m 1 T100\r\nx\r\n",
    b"ms m 1 MA\r\ny\r\n",
    b"ms m 1 ME\r\ny\r\n",
    b"ms m 1 C1\r\ny\r\n",
    b"md m I T30\r\n",
    b"md m\r\n",
    b"md m\r\n",
    b"ma a\r\n",
    b"ma none\r\n",
    b"ma made2 N0 J4\r\n",
    b"ma made2 MD\r\n",
    b"mn\r\n",
    b"me a\r\n",
    b"me none\r\n",
    b"set q 0 0 1 noreply\r\nx\r\nmn\r\n",
    b"verbosity 0\r\n",
    b"version\r\n",
    b"flush_all\r\n",
    b"get a\r\n",
]
BINARY = [
    binary(0x01, b"k", b"1", SETX),
    binary(0x00, b"k"),
    binary(0x00, b"none"),
    binary(0x0C, b"k"),
    binary(0x02, b"k", b"v", SETX),
    binary(0x03, b"none", b"v", SETX),
    binary(0x01, b"k", b"2", SETX, cas=1),
    binary(0x04, b"none"),
    count(0x05, b"k", 1, 0, 0),
    count(0x05, b"none", 1, 0, 0xFFFFFFFF),
    count(0x06, b"made", 1, 9, 0),
    binary(0x1C, b"k", extras=struct.pack("!I", 50)),
    binary(0x1C, b"none", extras=struct.pack("!I", 50)),
    binary(0x1D, b"k", extras=struct.pack("!I", 0)),
    binary(0x1D, b"none", extras=struct.pack("!I", 50)),
    binary(0x0E, b"k", b"z"),
    binary(0x0E, b"none", b"z"),
    binary(0x04, b"k"),
    binary(0x0A),
    binary(0x0B),
]
BY_UDP = [b"get none\r\n", set_command(b"u", b"1"), b"get u\r\n", b"incr u 1\r\n", b"touch u 0\r\n", b"delete u\r\n"]


class Talk:
    """One server, and a client in each dialect and transport."""

    def __init__(self, address):
        self.tcp, self.binary = memc.Tcp(address), memc.Tcp(address)
        self.udp = memc.Udp(address)

    def answer(self, connection, request):
        """What comes back, until nothing has come for a while."""
        connection.socket.sendall(request)
        return self.quiet(connection, 10.0)

    @staticmethod
    def quiet(connection, first_s):
        """What comes until nothing more does. The first byte may take longer."""
        got, patience = b"", first_s
        while True:
            connection.socket.settimeout(patience)
            try:
                more = connection.socket.recv(1 << 20)
            except TimeoutError:
                return got
            if not more:
                return got
            got, patience = got + more, 0.05

    def hold(self, tell=lambda request, lines: None):
        """The whole conversation. `tell` hears what the watcher was told of each request."""
        for connection, requests in ((self.tcp, ASCII), (self.binary, BINARY)):
            for request in requests:
                self.answer(connection, request)
                tell(request, self.told(request))
        for request in BY_UDP:
            self.udp.ask(request)
            tell(request, self.told(request))

    def told(self, _request):
        """What a watcher was told of the request just made: nobody watches."""
        return []


class Watched(Talk):
    """A conversation with a watcher."""

    def __init__(self, address):
        super().__init__(address)
        self.watcher, self.marker = memc.Tcp(address), memc.Tcp(address)
        same(self.answer(self.watcher, b"watch fetchers mutations\r\n"), b"OK\r\n", "watch")

    def told(self, _request):
        """The lines so far, up to that of a `get` of the marker's, without what is each server's own."""
        self.marker.ask(b"get marker\r\n")
        lines, deadline = [], time.monotonic() + 20
        while not any("key=marker" in line for line in lines):
            if time.monotonic() > deadline:
                raise Differs("the watcher was not told of a get")
            text = re.sub(r"ts=\S+ gid=\d+ ", "", self.quiet(self.watcher, 0.05).decode())
            # Which look-up is the first to notice that an item is dead depends on the moment.
            text = text.replace("status=flushed", "status=not_found")
            # A second may end between a command and the next: the TTLs asked for are multiples of ten.
            text = re.sub(r"ttl=(\d+)", lambda ttl: f"ttl={-int(ttl[1]) // 10 * -10}", text)
            lines += re.sub(r"cfd=\d+", "cfd=N", text).splitlines()
        return [line for line in lines if "key=marker" not in line]


class Differs(Exception):
    """The servers tell different things."""


def same(got, wanted, what):
    """Raises Differs unless both are equal."""
    if got != wanted:
        raise Differs(f"{what}: {got} instead of {wanted}")


def counters(tcp):
    """Counters of `stats`, and those of the classes summed."""
    stats = tcp.stats()
    found = {name: int(stats[name]) for name in COUNTED}
    for line, value in tcp.stats(b"slabs").items():
        name = line.partition(":")[2]
        if name in BY_CLASS:
            found[f"slabs {name}"] = found.get(f"slabs {name}", 0) + int(value)
    return found


def both(servers, what):
    """`what` of each server."""
    return [what(server) for server in servers]


def check_counters(servers):
    """Every counter moves by as much."""

    def moved(address):
        talk = Talk(address)
        talk.answer(talk.tcp, set_command(b"first", b"1"))
        talk.udp.ask(b"version\r\n")
        before = counters(talk.tcp)
        talk.hold()
        after = counters(talk.tcp)
        return {name: after[name] - before.get(name, 0) for name in after}

    genuine, ours = both(servers, moved)
    wrong = {name: (ours.get(name), n) for name, n in genuine.items() if ours.get(name) != n}
    if wrong:
        raise Differs(f"counters moved by (ours, memcached's): {wrong}")
    if genuine["get_hits"] == 0 or genuine["slabs get_hits"] == 0:
        raise Differs(f"nothing was counted: {genuine}")


def check_names(servers):
    """Every line of memcached's is there, in its order."""
    for what in (b"", b"items", b"slabs"):
        genuine, ours = both(servers, lambda a, what=what: list(memc.Tcp(a).stats(what)))
        # Which classes have items is each server's own.
        plain = [[re.sub(r"\b\d+:", "N:", name) for name in names] for names in (genuine, ours)]
        genuine, ours = (list(dict.fromkeys(names)) for names in plain)
        same([name for name in ours if name in genuine], genuine, f"lines of stats {what.decode()}")


def check_watch(servers):
    """Of every command watchers are told the same lines."""

    def told(address):
        heard = []
        Watched(address).hold(lambda request, lines: heard.append((request, lines)))
        return heard

    genuine, ours = both(servers, told)
    for (request, wanted), (_, got) in zip(genuine, ours, strict=True):
        same(got, wanted, f"{request[:60]}")
    if sum(len(lines) for _, lines in genuine) < len(genuine):
        raise Differs("the watcher was told next to nothing")


def check_conns(servers):
    """UDP sockets are listed, with the same lines."""

    def udp_lines(address):
        stats = memc.Tcp(address).stats(b"conns")
        fds = [name.split(":")[0] for name in stats if name.endswith(":UDP")]
        lines = [(name.split(":")[1], value) for name, value in stats.items() if name.split(":")[0] in fds[:1]]
        return [(name, value if name in ("UDP", "state") else value.rstrip("0123456789")) for name, value in lines]

    genuine, ours = both(servers, udp_lines)
    same(ours, genuine, "UDP sockets")
    if not genuine:
        raise Differs("memcached lists no UDP socket")


def main():
    """Each check on both servers."""
    servers = sys.argv[1:3]
    failures = 0
    for name, check in (
        ("the same counters after the same conversation", check_counters),
        ("every line of memcached's statistics, in its order", check_names),
        ("watchers are told the same of every command", check_watch),
        ("UDP sockets in stats conns", check_conns),
    ):
        try:
            both(servers, lambda address: memc.Tcp(address).ask(b"flush_all\r\n"))
            # What is stored within the second of a flush, memcached forgets too.
            time.sleep(1.5)
            check(servers)
            print(f"ok      {name}")
        except (Differs, memc.Wrong, memc.NoReply, OSError, KeyError, ValueError) as e:
            failures += 1
            print(f"FAILED  {name}: {type(e).__name__}: {e}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
