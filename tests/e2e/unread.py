#!/usr/bin/env python3
"""Clients that ask for long values and never read, beside honest ones.

    unread.py ADDRESS PID [--clients N] [--share SHARE]

PID is the server's, whose resident memory may grow by what docs/sizing.md plans for each connection, and a fixed part. Honest
clients must keep their share of the replies. Prints `ok NAME` or `FAILED NAME`, and exits 1 if any failed.
"""

import argparse
import pathlib
import resource
import socket
import sys
import time

from honest import PORT, Beside

VALUE = bytes(range(256)) * 2000
REQUESTS = 4
"""How often each asks."""
CONNECTION_MB = 34 / 1024
FIXED_MB = 100
"""For packets, long replies, and what is used for the first time."""
BEGUN_MIN = 32
"""Long replies that there is memory for at a time, at least; a client that takes nothing loses it to others."""
LONG_S = 20
"""Longest wait for a long value that is read."""


def resident_mb(pid):
    """Resident memory of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def store(address):
    """Stores the long value."""
    with socket.create_connection((address, PORT), timeout=LONG_S) as end:
        end.sendall(b"set long 0 0 %d\r\n%s\r\n" % (len(VALUE), VALUE))
        return end.recv(100) == b"STORED\r\n"


def reads_all(address):
    """Whether one that reads gets the long value whole."""
    with socket.create_connection((address, PORT), timeout=LONG_S) as end:
        end.sendall(b"get long\r\n")
        return takes(end, 1)


def unread(address):
    """One that asks and does not read."""
    end = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    end.settimeout(10)
    end.connect((address, PORT))
    end.sendall(b"get long\r\n" * REQUESTS)
    return end


def has_begun(end):
    """Whether the connection is there, and its first reply has begun."""
    end.settimeout(0)
    try:
        return end.recv(1, socket.MSG_PEEK) == b"V"
    except OSError:
        return False


def takes(end, replies=REQUESTS):
    """Whether so many replies come, whole."""
    want = b"VALUE long 0 %d\r\n%s\r\nEND\r\n" % (len(VALUE), VALUE) * replies
    end.settimeout(LONG_S)
    got = b""
    try:
        while len(got) < len(want) and (piece := end.recv(1 << 20)):
            got += piece
    except OSError:
        pass
    return got == want


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("pid", type=int)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.5)
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (asked.clients + 200, asked.clients + 200))
    results = [("the long value is stored", store(asked.address)), ("and read", reads_all(asked.address))]
    before = resident_mb(asked.pid)
    with Beside(asked.address, asked.share) as beside:
        ends = [unread(asked.address) for _ in range(asked.clients)]
        time.sleep(5)
        grown = resident_mb(asked.pid) - before
        results.append(("one that reads gets the long value", reads_all(asked.address)))
        begun = sum(map(has_begun, ends))
        results.append((f"{begun} of those that never read have the beginning of a reply", begun >= BEGUN_MIN))
        late = unread(asked.address)
        time.sleep(1)
        results.append(("one that reads after a second gets all that it has asked for", takes(late)))
    who = f"{len(ends)} clients that never read"
    results += [(f"{who}: {text}", is_well) for text, is_well in beside.report]
    planned = FIXED_MB + CONNECTION_MB * asked.clients
    results.append((f"{who} take {grown:.0f} MB of memory, of {planned:.0f} at most", grown <= planned))
    for text, is_well in results:
        print(f"{'ok     ' if is_well else 'FAILED'} {text}")
    return not all(is_well for _, is_well in results)


if __name__ == "__main__":
    sys.exit(main())
