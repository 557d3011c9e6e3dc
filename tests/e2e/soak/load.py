#!/usr/bin/env python3
"""The part of a soak that trusts nobody: one writer that knows what every key must hold.

    load.py TCP UDP --megabytes M --rate N --seconds S --warm FILE --json FILE [--seed N]

First fills M megabytes several times over, with each shape of values once, asks over UDP until
every packet slot has been used, sends large values over connections to every thread, whose buffers
grow to that once, does each operation a few times, and touches FILE. Then,
for S seconds, N operations a second: sets of three shapes in turn (so that slab pages must move),
sets that expire, gets over TCP and UDP, deletes, touches, counters, compare-and-swap, `stats`,
connections that come and go in good order, by reset, in the middle of a request, or stay idle, and
datagrams that must be dropped. A key that this program wrote holds what it wrote last, or nothing
(evicted); one that was deleted or is past its time holds nothing. Anything else is counted as wrong
and shown. FILE gets the counts, and what `stats latency` told of the first quarter of the time and
of the last, which have the same shapes.
"""

import argparse
import collections
import json
import pathlib
import random
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import memc  # noqa: E402 (from the folder above)

SHAPES = ((16, 200), (500, 1500), (3000, 20000))
"""Bytes of a value, one pair to a phase."""

LARGE_BYTES = 600_000
"""A value that lies in several chunks; one set in a thousand."""

PHASES = 4 * len(SHAPES)
"""How often the shape changes during the soak: each shape once in every quarter."""

IDLE_MAX = 40
"""Connections that are open and say nothing."""

LATE_S = 2.0
"""Past its time by so much an item must be gone: servers count in whole seconds."""

WARM_DATAGRAMS = 10_000
"""More than twice the packet slots that test_soak.py gives the appliance."""

WINDOW = 32
"""Of those, so many at once."""

BATCH_BYTES = 100_000
"""Of sets in a row, while the memory is filled."""

EXPIRING_MAX = 2000
"""Items that are waited for, at most."""


def value(name, version, size):
    """What version `version` of a key holds."""
    head = b"%s:%d;" % (name, version)
    return (head * (size // len(head) + 1))[:size]


class Load:
    """The connections, what each key must hold, and the counts."""

    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.tcp = memc.Tcp(args.tcp, timeout_s=60)
        self.udp = memc.Udp(args.udp)
        self.keys = [b"soak:%d" % i for i in range(args.megabytes * 1000)]
        self.held = {}
        self.counters = {}
        self.expiring = collections.deque()
        self.idle = collections.deque()
        self.versions = 0
        self.counts = collections.Counter()
        self.examples = []
        self.shape = SHAPES[0]

    def wrong(self, what, got):
        """Counts an answer that must not be, and keeps the first few."""
        self.counts["wrong"] += 1
        if len(self.examples) < 20:
            self.examples.append(f"{what}: {got[:120]!r}")

    def new_value(self, large=False):
        """The next version of a key: (version, size)."""
        self.versions += 1
        large = large or self.random.random() < 0.001
        return self.versions, LARGE_BYTES if large else self.random.randint(*self.shape)

    def judge(self, name, got, over):
        """A `get`'s answer against what the key must hold."""
        if got == b"END\r\n":
            self.counts["misses"] += 1
            self.held.pop(name, None)
        elif name in self.held and got == memc.hit(name, value(name, *self.held[name])):
            self.counts["hits"] += 1
        else:
            self.wrong(f"{over} get of {name.decode()}, {self.held.get(name)}", got)

    def expect(self, what, got, *allowed):
        """One of these answers, or it is wrong. Returns the answer."""
        if got not in allowed:
            self.wrong(what, got)
        return got

    # --- operations ---------------------------------------------------------------------------

    def set(self):
        """A new value, over a connection that stays."""
        name = self.random.choice(self.keys)
        held = self.new_value()
        self.expect("set", self.tcp.ask(memc.set_command(name, value(name, *held))), b"STORED\r\n")
        self.held[name] = held

    def get(self):
        """A key that is probably there."""
        name = self.random.choice(self.keys)
        self.judge(name, self.tcp.ask(b"get %s\r\n" % name), "TCP")

    def get_udp(self):
        """The same in datagrams, tried again when one gets lost."""
        name = self.random.choice(self.keys)
        if self.held.get(name, (0, 0))[1] > 20_000:
            return
        for _ in range(3):
            try:
                answer = self.udp.ask(b"get %s\r\n" % name, 20.0)
            except memc.NoReply:
                self.counts["udp_lost"] += 1
                self.udp.close()
                self.udp = memc.Udp(self.args.udp)
                continue
            self.judge(name, answer, "UDP")
            return

    def delete(self):
        """A delete, after which nothing is there."""
        name = self.random.choice(self.keys)
        self.expect("delete", self.tcp.ask(b"delete %s\r\n" % name), b"DELETED\r\n", b"NOT_FOUND\r\n")
        self.held.pop(name, None)
        self.expect("get after delete", self.tcp.ask(b"get %s\r\n" % name), b"END\r\n")

    def touch(self):
        """A touch leaves the value."""
        name = self.random.choice(self.keys)
        self.expect("touch", self.tcp.ask(b"touch %s 0\r\n" % name), b"TOUCHED\r\n", b"NOT_FOUND\r\n")
        self.judge(name, self.tcp.ask(b"get %s\r\n" % name), "TCP")

    def cas(self):
        """A compare-and-swap by the only writer takes effect."""
        name = self.random.choice(self.keys)
        answer = self.tcp.ask(b"gets %s\r\n" % name)
        if answer == b"END\r\n":
            self.held.pop(name, None)
            return
        unique = answer.split(b"\r\n", 1)[0].split()[4]
        held = self.new_value()
        data = value(name, *held)
        request = b"cas %s 0 0 %d %s\r\n%s\r\n" % (name, len(data), unique, data)
        if self.expect("cas", self.tcp.ask(request), b"STORED\r\n", b"NOT_FOUND\r\n") == b"STORED\r\n":
            self.held[name] = held

    def incr(self):
        """A counter counts, or has been evicted."""
        name = b"count:%d" % self.random.randrange(50)
        answer = self.tcp.ask(b"incr %s 1\r\n" % name)
        if answer == b"NOT_FOUND\r\n":
            self.expect("add", self.tcp.ask(memc.set_command(name, b"0").replace(b"set", b"add", 1)), b"STORED\r\n")
            self.counters[name] = 0
        else:
            self.counters[name] = self.counters.get(name, 0) + 1
            self.expect(f"incr {name.decode()}", answer, b"%d\r\n" % self.counters[name])

    def expire(self):
        """Sets an item for a few seconds, and looks after those whose time is over."""
        if len(self.expiring) < EXPIRING_MAX:
            self.versions += 1
            name, seconds = b"short:%d" % self.versions, self.random.randint(1, 5)
            request = memc.set_command(name, value(name, 1, self.random.randint(*self.shape)), exptime=seconds)
            self.expect("set", self.tcp.ask(request), b"STORED\r\n")
            self.expiring.append((time.monotonic() + 5 + LATE_S, name))
        while self.expiring and self.expiring[0][0] < time.monotonic():
            _, name = self.expiring.popleft()
            self.expect(f"{name.decode()} past its time", self.tcp.ask(b"get %s\r\n" % name), b"END\r\n")
            self.counts["expired"] += 1

    def stats(self):
        """What collectors ask for."""
        for argument in (b"", b"slabs", b"items", b"latency"):
            self.tcp.stats(argument)

    def connection(self, large=False):
        """A connection that comes, asks, and goes in one of several ways."""
        name = self.random.choice(self.keys)
        held = self.new_value(large)
        client = memc.Tcp(self.args.tcp, timeout_s=60)
        self.counts["connections"] += 1
        self.expect("set", client.ask(memc.set_command(name, value(name, *held))), b"STORED\r\n")
        self.held[name] = held
        self.judge(name, client.ask(b"get %s\r\n" % name), "new connection's")
        way = self.random.randrange(4)
        if way == 0:
            self.idle.append(client)
            if len(self.idle) > IDLE_MAX:
                self.idle.popleft().close()
            return
        if way == 1:  # a reset, not a close
            client.socket.setsockopt(memc.socket.SOL_SOCKET, memc.socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif way == 2:  # half of a request
            client.socket.sendall(b"set %s 0 0 100000\r\nhalf" % name)
        client.close()

    def malformed(self):
        """Datagrams that a server must drop: no whole header; one of several."""
        self.udp.socket.send(b"\x00\x01")
        self.udp.send(b"get x\r\n", total=2)
        self.counts["kv_frame_short"] += 1
        self.counts["kv_multipart"] += 1

    MIX = ((set, 30), (get, 25), (get_udp, 15), (expire, 8), (delete, 4), (touch, 4), (cas, 4),
           (incr, 5), (connection, 4), (malformed, 0.5), (stats, 0.1))  # fmt: skip

    # --- the course ---------------------------------------------------------------------------

    def fill(self):
        """Writes as much as fits, half as much again, with each shape."""
        for self.shape in SHAPES:
            written = 0
            while written < self.args.megabytes * 1.5 * (1 << 20):
                names = self.random.sample(self.keys, 2 * BATCH_BYTES // sum(self.shape))
                held = [self.new_value() for _ in names]
                request = b"".join(memc.set_command(n, value(n, *h)) for n, h in zip(names, held))
                self.tcp.socket.sendall(request)
                answer = b""
                while answer.count(b"\r\n") < len(names):
                    answer += self.tcp.socket.recv(1 << 16)
                self.expect("sets in a row", answer, b"STORED\r\n" * len(names))
                self.held.update(zip(names, held))
                written += len(request)
        client = memc.Udp(self.args.udp)
        client.socket.settimeout(1.0)
        for _ in range(WARM_DATAGRAMS // WINDOW):
            for _ in range(WINDOW):
                client.send(b"get nothing\r\n")
            try:
                for _ in range(WINDOW):
                    client.socket.recv(100)
            except TimeoutError:
                pass
        client.close()
        for i in range(IDLE_MAX * 8):
            self.connection(large=i % 8 < 4)
        for operation, _ in self.MIX:
            for _ in range(100):
                operation(self)
        self.reset()

    def reset(self):
        """`stats reset`; what had been evicted and moved until then is added up."""
        stats = self.tcp.stats()
        self.counts["evicted"] += int(stats["evictions"])
        self.counts["pages_moved"] += int(stats["slabs_moved"])
        self.tcp.socket.sendall(b"stats reset\r\n")
        self.expect("stats reset", self.tcp.socket.recv(100), b"RESET\r\n")

    def soak(self):
        """The mix, at the rate, for the time. Returns the latencies of the first and last quarter."""
        operations, weights = zip(*self.MIX)
        began = time.monotonic()
        done, quarter, latency = 0, -1, {}
        while (now := time.monotonic() - began) < self.args.seconds:
            if quarter != (quarter := int(now * 4 / self.args.seconds)):
                if quarter == 1:
                    latency["early"] = self.tcp.stats(b"latency")
                if quarter == 3:
                    self.reset()
            self.shape = SHAPES[int(now * PHASES / self.args.seconds) % len(SHAPES)]
            # What a stall left undone is not made up for at once.
            done = max(done, int((now - 1) * self.args.rate))
            while done < now * self.args.rate:
                self.random.choices(operations, weights)[0](self)
                self.counts["operations"] += 1
                done += 1
            time.sleep(0.02)
        latency["late"] = self.tcp.stats(b"latency")
        self.reset()
        for client in (self.tcp, *self.idle):
            client.close()
        return latency


def main():
    """The command line above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tcp")
    parser.add_argument("udp")
    parser.add_argument("--megabytes", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--seed", type=int, default=11211)
    args = parser.parse_args()
    load = Load(args)
    load.fill()
    pathlib.Path(args.warm).touch()
    latency = load.soak()
    report = {**load.counts, "wrong": load.counts["wrong"], "examples": load.examples, "latency": latency}
    pathlib.Path(args.json).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
