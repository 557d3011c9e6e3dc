#!/usr/bin/env python3
"""Starts that are cut short: SIGKILL at any moment of them, with a memory file that has items in it.

    starts.py --server BINARY [--small] [NAME...]
"""

import os
import random
import signal
import subprocess
import time

from attack import KEYS, Server, attack, key, main, memc, memory_file, must, value


def fill(server):
    """Every key has its value."""
    client = server.connect()
    for n in range(KEYS):
        must(client.ask(memc.set_command(key(n), value(n, 1))) == b"STORED\r\n", "set")


@attack("killed while it starts")
def killed(size):
    """The next start works, and has the items or none."""
    chance, kept, discarded = random.Random(8), 0, 0
    rounds = size.of(8, 28)
    with memory_file() as items:
        flags = ("-m", "64", "-e", items)
        for n in range(rounds):
            began = time.monotonic()
            with Server(size, *flags) as server:
                takes = time.monotonic() - began
                fill(server)
                server.stop(signal.SIGUSR1)
            # From before its first step to after its last.
            moment = takes * 1.3 * n / (rounds - 1) * chance.uniform(0.9, 1.1)
            command = [size.server, "serve", "-p", "-1", "-U", "-1", "--huge", "off", *flags]
            with open(os.devnull, "w", encoding="ascii") as nowhere:
                starting = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
                time.sleep(moment)
                starting.kill()
                starting.wait()
            with Server(size, *flags) as server:
                client, there = server.connect(), 0
                for m in range(KEYS):
                    told = client.ask(b"get %s\r\n" % key(m))
                    must(told in (b"END\r\n", memc.hit(key(m), value(m, 1))), f"WRONG {told[:60]!r}")
                    there += told != b"END\r\n"
                must(there in (0, KEYS), f"{there} of {KEYS} items are there")
                kept += there > 0
                discarded += there == 0
    must(kept and discarded, f"no kill hit a start: {kept} kept, {discarded} discarded")
    return f"{rounds} kills: items kept {kept} times, discarded {discarded} times"


if __name__ == "__main__":
    main()
