#!/usr/bin/env python3
"""Writes more than fits, then reads it all back: right values, right counters, nothing else.

    filling.py evict TCP UDP MEGABYTES      twice as much as fits: old items go, new ones stay
    filling.py refuse TCP UDP MEGABYTES     the server runs with -M: refuses, and keeps what it has

A last `--label TEXT` goes in front of each line.
"""

import random
import sys

import memc

OUT_OF_MEMORY = b"SERVER_ERROR out of memory storing object\r\n"


def value(i):
    """The value of item `i`: 1 to 8,000 bytes, told apart by its first."""
    return b"%d/" % i + random.Random(i).randbytes(random.Random(i).randrange(8000))


def key(i):
    """The name of item `i`."""
    return b"item:%d" % i


failures = 0


def verdict(name, truth, why=""):
    """One line for one claim."""
    global failures
    failures += not truth
    print(f"ok      {name}" if truth else f"FAILED  {name}: {why}")


def read_back(udp, stored):
    """Which of the items are there, and how many answers were neither right nor a miss."""
    there, wrong = set(), 0
    for i in stored:
        answer = udp.ask(b"get %s\r\n" % key(i))
        if answer == memc.hit(key(i), value(i)):
            there.add(i)
        elif answer != b"END\r\n":
            wrong += 1
    return there, wrong


def counters(before, after):
    """How far the counters moved."""
    names = ("get_hits", "get_misses", "cmd_set", "evictions", "store_no_memory")
    return {n: int(after[n]) - int(before[n]) for n in names if n in before and n in after}


def main(argv):
    """See the module's text."""
    mode, tcp, udp, megabytes = argv[1:5]
    tcp, udp = memc.Tcp(tcp), memc.Udp(udp)
    total_bytes = 2 * int(megabytes) << 20
    before = tcp.stats()
    stored, refused, wrong, written = [], 0, 0, 0
    i = 0
    while written < total_bytes:
        answer = tcp.ask(memc.set_command(key(i), value(i)))
        if answer == b"STORED\r\n":
            stored.append(i)
        elif answer == OUT_OF_MEMORY:
            refused += 1
        else:
            wrong += 1
        written += len(value(i))
        i += 1
    label = f"{argv[6] if argv[5:6] == ['--label'] else ''}{mode}: "
    verdict(f"{label}every set is stored or refused by name", wrong == 0, f"{wrong} other answers")
    there, wrong = read_back(udp, stored)
    after = tcp.stats()
    moved = counters(before, after)
    verdict(f"{label}{len(stored)} items read back, no wrong value", wrong == 0, f"{wrong} wrong")
    verdict(
        f"{label}hits and misses are counted exactly",
        (moved["get_hits"], moved["get_misses"]) == (len(there), len(stored) - len(there)),
        f"{len(there)} of {len(stored)} were there; counters moved by {moved}",
    )
    if mode == "evict":
        # A moving hand is not exact LRU: of the newest tenth, nearly all must be there.
        newest = stored[-len(stored) // 10 :]
        kept = sum(i in there for i in newest) / len(newest)
        verdict(f"{label}nothing is refused", refused == 0, f"{refused} refused")
        gone = len(stored) - len(there)
        verdict(f"{label}something was evicted, and counted", 0 < gone <= moved["evictions"], f"{gone} gone, {moved}")
        verdict(f"{label}at least a third of all is there", len(there) * 3 >= len(stored), f"{len(there)}")
        verdict(f"{label}the newest items are there", kept > 0.9, f"{kept:.0%} of the newest tenth")
    else:
        verdict(f"{label}something is refused", refused > 0, "nothing was")
        verdict(f"{label}what was stored stays", len(there) == len(stored), f"{len(there)} of {len(stored)}")
        verdict(f"{label}nothing is evicted", moved["evictions"] == 0, str(moved))
        gap = next(i for i in range(len(stored) + refused) if i not in there)
        verdict(f"{label}what was refused is a miss", udp.ask(b"get %s\r\n" % key(gap)) == b"END\r\n", "it is there")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
