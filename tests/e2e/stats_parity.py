#!/usr/bin/env python3
"""Statistics of memcached and of gnomon after the same conversation: the same, row by row.

    stats_parity.py GENUINE OURS        addresses as HOST:PORT, TCP and UDP on both

Every row of memcached's `stats` is compared: it moves by as much, or it has the same value, or it means
the same by a check of its own, or docs/protocol.md names it in its table of rows with another meaning.
Then the rows' names and their order, the lines that `watch` gives for each command, and what
`stats conns` says of UDP sockets. Both servers are flushed. Prints `ok NAME` or `FAILED NAME: why`, and
exits 1 if any failed.
"""

import re
import struct
import sys
import time
from pathlib import Path

import memc
from memc import set_command

SETX = struct.pack("!II", 0, 0)
PROTOCOL = Path(__file__).resolve().parents[2] / "docs/protocol.md"
# Rows that depend on nothing but the conversation.
COUNTED = """cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses delete_misses delete_hits
incr_misses incr_hits decr_misses decr_hits cas_misses cas_hits cas_badval touch_hits touch_misses
store_too_large store_no_memory auth_cmds auth_errors rejected_connections
curr_connections curr_items evictions conn_yields listen_disabled_num idle_kicks log_watchers
log_worker_written log_watcher_sent""".split()
# Rows that say how a server is set up, or that nothing here moves: of the same value.
SAME = """pointer_size max_connections limit_maxbytes accepting_conns hash_is_expanding response_obj_oom
read_buf_oom time_in_listen_disabled_us slab_reassign_rescues slab_reassign_chunk_rescues
slab_reassign_evictions_nomem slab_reassign_inline_reclaim slab_reassign_busy_items
slab_reassign_busy_deletes slab_reassign_busy_nomem slab_reassign_last_busy_status slab_reassign_running slabs_moved malloc_fails log_worker_dropped
log_watcher_skipped unexpected_napi_ids round_robin_fallback evicted_unfetched evicted_active
direct_reclaims lru_bumps_dropped""".split()
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

    def hold(self, show=lambda request, lines: None):
        """The whole conversation. `show` takes what the watcher got of each request."""
        for connection, requests in ((self.tcp, ASCII), (self.binary, BINARY)):
            for request in requests:
                self.answer(connection, request)
                show(request, self.watched(request))
        for request in BY_UDP:
            self.udp.ask(request)
            show(request, self.watched(request))

    def watched(self, _request):
        """What a watcher got of the request just made: nobody watches."""
        return []


class Watched(Talk):
    """A conversation with a watcher."""

    events = b"fetchers mutations"

    def __init__(self, address):
        super().__init__(address)
        self.watcher, self.marker = memc.Tcp(address), memc.Tcp(address)
        same(self.answer(self.watcher, b"watch %s\r\n" % self.events), b"OK\r\n", "watch")

    def watched(self, _request):
        """The lines so far, up to that of a `get` of the marker's, without what is each server's own."""
        self.marker.ask(b"get marker\r\n")
        lines, deadline = [], time.monotonic() + 20
        while not any("key=marker" in line for line in lines):
            if time.monotonic() > deadline:
                raise Differs("the watcher got no line of a get")
            text = re.sub(r"ts=\S+ gid=\d+ ", "", self.quiet(self.watcher, 0.05).decode())
            # Which look-up is the first to notice that an item is dead depends on the moment.
            text = text.replace("status=flushed", "status=not_found")
            # A second may end between a command and the next: the TTLs asked for are multiples of ten.
            text = re.sub(r"ttl=(\d+)", lambda ttl: f"ttl={-int(ttl[1]) // 10 * -10}", text)
            lines += re.sub(r"cfd=\d+", "cfd=N", text).splitlines()
        return [line for line in lines if "key=marker" not in line]


class Differs(Exception):
    """The servers report different things."""


def same(got, wanted, what):
    """Raises Differs unless both are equal."""
    if got != wanted:
        raise Differs(f"{what}: {got} instead of {wanted}")


def counters(tcp):
    """Counters of `stats`, and those of the classes summed."""
    stats = tcp.stats()
    found = {name: int(stats[name]) for name in COUNTED if name in stats}
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
        # With the CAS id that the server gave, and a value above the limit.
        cas = talk.answer(talk.tcp, set_command(b"id", b"1") + b"gets id\r\n").split()[5]
        talk.answer(talk.tcp, b"cas id 0 0 1 %s\r\n2\r\n" % cas)
        talk.answer(talk.tcp, set_command(b"large", b"x" * (2 << 20)))
        after = counters(talk.tcp)
        return {name: after[name] - before.get(name, 0) for name in after}

    genuine, ours = both(servers, moved)
    wrong = {name: (ours.get(name), n) for name, n in genuine.items() if ours.get(name) != n}
    if wrong:
        raise Differs(f"counters moved by (ours, memcached's): {wrong}")
    # Rows that no conversation moves: what needs time, shortage, SASL, or a limit.
    still = "auth_ rejected_ evictions conn_yields listen_ idle_ log_ curr_connections total_connections no_memory"
    still = [n for n, moved in genuine.items() if moved == 0 and not any(word in n for word in still.split())]
    if still:
        raise Differs(f"not in the conversation: {still}")


def excepted():
    """The rows that docs/protocol.md says have another meaning."""
    text = PROTOCOL.read_text(encoding="utf-8")
    table = text.partition("| rows of `stats` | here |\n")[2].partition("\n\n")[0]
    return [name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def check_by_meaning(address):
    """The rows that need a check of their own, on one server. Returns their names."""
    before, tcp = memc.Tcp(address).stats(), memc.Tcp(address)
    time.sleep(1.1)
    after = tcp.stats()

    def number(name):
        return float(after[name]) - float(before[name])

    wrong = [name for name, holds in {
        "pid": int(after["pid"]) > 1 and after["pid"] == before["pid"],
        "uptime": 1 <= number("uptime") <= 60,
        "time": abs(int(after["time"]) - time.time()) <= 2,
        "version": after["version"] == tcp.ask(b"version\r\n").split()[1].decode(),
        "rusage_user": number("rusage_user") >= 0 and re.fullmatch(r"\d+\.\d{6}", after["rusage_user"]),
        "rusage_system": number("rusage_system") >= 0 and re.fullmatch(r"\d+\.\d{6}", after["rusage_system"]),
        "lru_crawler_running": after["lru_crawler_running"] in ("0", "1"),
    }.items() if not holds]
    if wrong:
        raise Differs(f"{address}: {[(name, before[name], after[name]) for name in wrong]}")
    return ["pid", "uptime", "time", "version", "rusage_user", "rusage_system", "lru_crawler_running"]


def check_rows(servers):
    """Every row of memcached's is compared, or is an exception that docs/protocol.md names."""
    checked = both(servers, check_by_meaning)[0]
    genuine, ours = both(servers, lambda address: memc.Tcp(address).stats())
    wrong = {name: (ours.get(name), genuine[name]) for name in SAME if ours.get(name) != genuine.get(name, ours.get(name))}
    if wrong:
        raise Differs(f"values of (ours, memcached's): {wrong}")
    known = [*COUNTED, *SAME, *checked, *excepted()]
    same([name for name in genuine if name not in known], [], "rows that nothing compares")
    twice = {name for name in known if known.count(name) > 1}
    same(twice, set(), "rows both compared and excepted")
    same([name for name in excepted() if name not in genuine], [], "excepted rows that memcached has not")


def check_names(servers):
    """Every line of memcached's is there, in its order."""
    for what in (b"", b"items", b"slabs"):
        genuine, ours = both(servers, lambda a, what=what: list(memc.Tcp(a).stats(what)))
        # Which classes have items is each server's own.
        plain = [[re.sub(r"\b\d+:", "N:", name) for name in names] for names in (genuine, ours)]
        genuine, ours = (list(dict.fromkeys(names)) for names in plain)
        same([name for name in ours if name in genuine], genuine, f"lines of stats {what.decode()}")


def check_watch(servers):
    """Of every command watchers get the same lines."""

    # A later release than 1.6.18 tells of deletions, too.
    if memc.Tcp(servers[0]).ask(b"watch deletions\r\n") == b"OK\r\n":
        Watched.events = b"fetchers mutations deletions"

    def shown(address):
        lines_of = []
        Watched(address).hold(lambda request, lines: lines_of.append((request, lines)))
        return lines_of

    genuine, ours = both(servers, shown)
    for (request, wanted), (_, got) in zip(genuine, ours, strict=True):
        same(got, wanted, f"{request[:60]}")
    if sum(len(lines) for _, lines in genuine) < len(genuine):
        raise Differs("the watcher got next to nothing")


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
        ("every row of memcached's stats means the same, or is a named exception", check_rows),
        ("every line of memcached's statistics, in its order", check_names),
        ("watchers get the same lines of every command", check_watch),
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
