#!/usr/bin/env python3
"""Loads under which a store must not run out of memory: few large values that many change while others
read them, sizes that change, pages on the move. One server for each load, on TCP's loopback.

    pressure.py [--memcached] [--seconds S] [LOAD...]      all loads, or those of these names
    pressure.py list

GNOMON names the program (target/release/gnomon); with --memcached, the genuine server's figures. A load runs
for so many seconds (10) and is judged by what the server says and by what is there afterwards.
"""

import contextlib
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time

import memc

GNOMON = os.environ.get("GNOMON", "target/release/gnomon")
LOADS = {}
KEY = b"z"


def load(name, *flags):
    """Marks a load: its name, and the server's flags. It gets an address and the seconds."""

    def mark(function):
        LOADS[name] = (flags, function)
        return function

    return mark


@contextlib.contextmanager
def serving(flags, genuine):
    """A server of one's own. Its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    if genuine:
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        command = ["memcached", "-l", "127.0.0.1", "-U", "0", *user]
    else:
        command = [GNOMON, "serve", "-l", "127.0.0.1", "-U", "0", "--huge", "off"]
    server = subprocess.Popen([*command, "-p", port, *flags], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                memc.Tcp(f"127.0.0.1:{port}").close()
                break
            except OSError:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def replies(client, n):
    """The next `n` lines."""
    while client.buffer.count(b"\r\n") < n:
        more = client.socket.recv(1 << 20)
        if not more:
            raise memc.NoReply("closed")
        client.buffer += more
    lines = client.buffer.split(b"\r\n")
    client.buffer = b"\r\n".join(lines[n:])
    return lines[:n]


def repeat(address, command, most, seconds, told):
    """Sends a command again and again, so often at most; how often each line was the answer."""
    client, counts, pipelined = memc.Tcp(address, timeout_s=60), {}, 20
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and most >= pipelined:
        most -= pipelined
        client.socket.sendall(command * pipelined)
        for line in replies(client, pipelined):
            counts[line] = counts.get(line, 0) + 1
    told.put(counts)


def read(address, seconds, told):
    """Gets the value, again and again; how often it came in whole, not at all, or otherwise."""
    client, counts = memc.Tcp(address, timeout_s=60), {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        client.socket.sendall(b"get %s\r\n" % KEY)
        reply = b""
        while not reply.endswith(b"END\r\n"):
            more = client.socket.recv(1 << 20)
            if not more:
                raise memc.NoReply("closed")
            reply += more
        head, _, rest = reply.partition(b"\r\n")
        whole = len(reply) > 5 and len(rest) == int(head.split()[3]) + len(b"\r\nEND\r\n")
        line = b"miss" if reply == b"END\r\n" else b"read" if whole else b"torn"
        counts[line] = counts.get(line, 0) + 1
    told.put(counts)


def together(*jobs):
    """Each job in a process of its own; what they were told, in all."""
    told = multiprocessing.Queue()
    processes = [multiprocessing.Process(target=run, args=(*args, told)) for run, *args in jobs]
    for process in processes:
        process.start()
    total = {}
    for _ in processes:
        for line, count in told.get(timeout=600).items():
            total[line] = total.get(line, 0) + count
    for process in processes:
        process.join()
    return total


def asked(client, command, wanted):
    """One command and its one line."""
    client.socket.sendall(command)
    line = replies(client, 1)[0]
    if line != wanted:
        raise memc.Wrong(f"{command[:40]!r}: {line!r}")


def value_len(address):
    """Bytes of the value that is there; None when there is none."""
    reply = memc.Tcp(address, timeout_s=60).ask(b"get %s\r\n" % KEY)
    return None if reply == b"END\r\n" else int(reply.split(b"\r\n", 1)[0].split()[3])


def only(told, *wanted):
    """Other lines than these are failures."""
    return {line.decode(): n for line, n in told.items() if line not in wanted}


# --- values that many change -------------------------------------------------------------------------


def appending(kilobytes, writers, readers):
    """Clients that append a byte to one value."""

    def run(address, seconds):
        size = kilobytes * 1000
        # Up to what the item limit allows.
        most = (1_000_000 - size) // writers
        asked(memc.Tcp(address), memc.set_command(KEY, b"v" * size), b"STORED")
        job = (repeat, address, b"append %s 0 0 1\r\nw\r\n" % KEY, most, seconds)
        told = together(*[job] * writers, *[(read, address, seconds)] * readers)
        wrong = only(told, b"STORED", b"read")
        if value_len(address) != size + told[b"STORED"]:
            wrong["bytes missing"] = size + told[b"STORED"] - (value_len(address) or 0)
        return told, wrong

    return run


for kilobytes in (1, 20, 300):
    load(f"append-{kilobytes}", "-m", "256")(appending(kilobytes, 8, 0))
load("append-300-read", "-m", "256")(appending(300, 1, 6))


def invalidating(kilobytes):
    """Clients that mark one value as stale, which copies it."""

    def run(address, seconds):
        asked(memc.Tcp(address), memc.set_command(KEY, b"v" * kilobytes * 1000), b"STORED")
        told = together(*[(repeat, address, b"md %s I T300\r\n" % KEY, sys.maxsize, seconds)] * 8)
        wrong = only(told, b"HD")
        if value_len(address) != kilobytes * 1000:
            wrong["the value"] = "is gone"
        return told, wrong

    return run


for kilobytes in (1, 300):
    load(f"invalidate-{kilobytes}", "-m", "256")(invalidating(kilobytes))


def write(address, seconds, told):
    """Sets or replaces the value, 300 to 900 KB of it, and looks for it when that was refused."""
    client, counts = memc.Tcp(address, timeout_s=60), {}
    sizes, deadline = random.Random(1), time.monotonic() + seconds
    while time.monotonic() < deadline:
        command = sizes.choice((b"set", b"replace"))
        value = b"v" * sizes.randrange(300_000, 900_000)
        client.socket.sendall(command + b" %s 0 0 %d\r\n%s\r\n" % (KEY, len(value), value))
        line = replies(client, 1)[0]
        counts[line] = counts.get(line, 0) + 1
        client.socket.sendall(b"mg %s s\r\n" % KEY)
        if (there := replies(client, 1)[0]) != b"HD s%d" % len(value):
            counts[b"then " + there] = counts.get(b"then " + there, 0) + 1
    told.put(counts)


def replacing(readers):
    """One client that writes, others that read."""

    def run(address, seconds):
        asked(memc.Tcp(address), memc.set_command(KEY, b"v" * 300_000), b"STORED")
        told = together((write, address, seconds), *[(read, address, seconds)] * readers)
        return told, only(told, b"STORED", b"read")

    return run


for readers in (6, 12):
    load(f"replace-{readers}", "-m", "256")(replacing(readers))


# --- sizes that change -------------------------------------------------------------------------------


def fill(client, name, size, count):
    """Stores so many items and says how many were refused."""
    refused, value = 0, b"v" * size
    for first in range(0, count, 100):
        keys = range(first, min(first + 100, count))
        client.socket.sendall(b"".join(memc.set_command(b"%s:%d" % (name, n), value) for n in keys))
        refused += sum(line != b"STORED" for line in replies(client, len(keys)))
    return refused


def there(client, name, count):
    """How many of these keys are there."""
    found = 0
    for first in range(0, count, 100):
        keys = range(first, min(first + 100, count))
        client.socket.sendall(b"".join(b"mg %s:%d\r\n" % (name, n) for n in keys))
        found += sum(line == b"HD" for line in replies(client, len(keys)))
    return found


@load("first-large", "-m", "64")
def first_large(address, seconds):
    """Full of items of 10 bytes, and then a first large one of each of some sizes."""
    client, told = memc.Tcp(address, timeout_s=60), {}
    deadline, round_ = time.monotonic() + seconds, 0
    while time.monotonic() < deadline or round_ == 0:
        # More than there is room for, of either server.
        refused = fill(client, b"small%d" % round_, 10, 1_100_000 if round_ == 0 else 100_000)
        told[b"refused small"] = told.get(b"refused small", 0) + refused
        for size in (442_000, 96_000, 700_000, 20_000):
            client.socket.sendall(memc.set_command(KEY, b"v" * size))
            line = replies(client, 1)[0]
            told[line] = told.get(line, 0) + 1
        client.socket.sendall(b"delete %s\r\n" % KEY)
        replies(client, 1)
        round_ += 1
    return told, {line: n for line, n in only(told, b"STORED").items() if n}


def reassign(address, seconds, told):
    """Sends pages from and to random classes."""
    client, chance = memc.Tcp(address, timeout_s=60), random.Random(2)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        client.socket.sendall(b"slabs reassign %d %d\r\n" % (chance.choice((-1, chance.randrange(1, 40))), chance.randrange(1, 40)))
        replies(client, 1)
        time.sleep(0.002)
    told.put({})


def set_many(address, seconds, seed, told):
    """Sets values of 96 KB under many keys."""
    client, counts, chance = memc.Tcp(address, timeout_s=60), {}, random.Random(seed)
    value, deadline = b"v" * 96_000, time.monotonic() + seconds
    while time.monotonic() < deadline:
        client.socket.sendall(memc.set_command(b"k%d" % chance.randrange(2_000), value) * 4)
        for line in replies(client, 4):
            counts[line] = counts.get(line, 0) + 1
    told.put(counts)


@load("reassign", "-m", "64")
def reassigning(address, seconds):
    """Values of 96 KB while an administrator sends pages about."""
    client = memc.Tcp(address, timeout_s=60)
    for size in (100, 3_000, 30_000, 300_000):
        fill(client, b"fill%d" % size, size, min(20_000, 16_000_000 // size))
    told = together((reassign, address, seconds), *[(set_many, address, seconds, seed) for seed in range(4)])
    return told, only(told, b"STORED")


def refilling(how, pause):
    """A size that goes, by a flush or by deletes, and another one that comes after a pause: all of it is
    there, as far as it fits (in chunks of 4,992 bytes, all pages but two)."""

    def run(address, _seconds):
        client, wrong, told = memc.Tcp(address, timeout_s=60), {}, {}
        count = 12_500
        for round_ in range(3):
            fill(client, b"old", 11_000, 6_000)
            if how == "flush":
                asked(client, b"flush_all\r\n", b"OK")
            else:
                for first in range(0, 6_000, 100):
                    client.socket.sendall(b"".join(b"delete old:%d\r\n" % n for n in range(first, first + 100)))
                    replies(client, 100)
                # What it takes the place of is no more than a flush would leave.
                for n in range(0, count, 100):
                    client.socket.sendall(b"".join(b"delete new:%d\r\n" % m for m in range(n, n + 100)))
                    replies(client, 100)
            time.sleep(pause)
            fill(client, b"new", 4_000, count)
            found = there(client, b"new", count)
            told[f"round {round_}".encode()] = found
            if found != count:
                wrong[f"missing in round {round_}"] = count - found
        return told, wrong

    return run


for how in ("flush", "delete"):
    for pause in (0, 20, 75):
        load(f"refill-{how}-{pause}", "-m", "64")(refilling(how, pause))


def main(argv):
    """See the module's text."""
    names, seconds, genuine = argv[1:], 10.0, False
    if "--memcached" in names:
        names.remove("--memcached")
        genuine = True
    if "--seconds" in names:
        at = names.index("--seconds")
        seconds = float(names[at + 1])
        del names[at : at + 2]
    if names == ["list"]:
        print("\n".join(LOADS))
        return 0
    failed = 0
    for name in names or LOADS:
        flags, run = LOADS[name]
        with serving(flags, genuine) as address:
            told, wrong = run(address, seconds)
        figures = ", ".join(f"{n} {line.decode()}" for line, n in sorted(told.items()))
        failed += bool(wrong)
        print(f"{'FAILED ' if wrong else 'ok     '} pressure: {name}: {wrong or ''} ({figures})", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
