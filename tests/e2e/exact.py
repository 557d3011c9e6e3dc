#!/usr/bin/env python3
"""Values both ways over TCP, compared byte for byte.

    exact.py HOST:PORT CONNECTIONS MEGABYTES NAME     so many each way, of all connections together

Prints `ok` and how many megabytes a second went each way, or `FAILED` and why, and exits 1 then.
"""

import random
import socket
import sys
import threading
import time

VALUE_BYTES = 500_000


def exactly(reader, wanted, what):
    """Reads what is wanted, or ends the program."""
    got = reader.read(len(wanted))
    if got != wanted:
        at = next((n for n, (a, b) in enumerate(zip(got, wanted)) if a != b), len(got))
        sys.exit(f"{what}: byte {at} of {len(wanted)} is wrong")


def store(number, reader, client, values, count):
    """Values to the server."""
    for n in range(count):
        value = values[n % len(values)]
        client.sendall(b"set k%d:%d 0 0 %d\r\n%s\r\n" % (number, n % len(values), len(value), value))
        exactly(reader, b"STORED\r\n", "set")


def fetch(number, reader, client, values, count):
    """The same values back."""
    for n in range(count):
        value = values[n % len(values)]
        client.sendall(b"get k%d:%d\r\n" % (number, n % len(values)))
        exactly(reader, b"VALUE k%d:%d 0 %d\r\n%s\r\nEND\r\n" % (number, n % len(values), len(value), value), "get")


def main():
    """Every connection has a thread, and values of its own."""
    host, port = sys.argv[1].rsplit(":", 1)
    connections, megabytes = int(sys.argv[2]), int(sys.argv[3])
    count = max(1, megabytes * 1_000_000 // VALUE_BYTES // connections)
    ends = []
    for number in range(connections):
        client = socket.create_connection((host, int(port)), 60)
        client.settimeout(300)
        values = [random.Random(f"{number}/{n}").randbytes(VALUE_BYTES) for n in range(4)]
        ends.append((number, client.makefile("rb", 1 << 20), client, values, count))
    failed, rates = [], []

    def told(what, end):
        try:
            what(*end)
        except (SystemExit, OSError) as e:
            failed.append(e)

    for name, what in (("to the server", store), ("from it", fetch)):
        began = time.monotonic()
        threads = [threading.Thread(target=told, args=(what, end)) for end in ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            print(f"FAILED  {sys.argv[4]}, {name}: {failed}")
            sys.exit(1)
        moved = connections * count * VALUE_BYTES / 1e6
        rates.append(f"{name} {moved / (time.monotonic() - began):.2f} MB/s")
    print(f"ok      {sys.argv[4]}: {', '.join(rates)}")


if __name__ == "__main__":
    main()
