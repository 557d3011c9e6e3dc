"""What the batteries in Python share: checks with a name, each on a client of its own.

A battery registers checks with `@check(NAME)` and ends in `main(connect)`. It is run as

    BATTERY.py HOST:PORT [--label TEXT]

and prints `ok NAME` or `FAILED NAME: why` per check, and exits 1 if any failed. A check fails by
any exception: `Wrong` from here, or whatever the library under test raises.
"""

import argparse
import itertools
import os
import sys
import time

EVENTUALLY_S = 20.0
"""How long to wait for what takes a second or two: servers and CI machines are not punctual."""

CHECKS = []
NUMBERS = itertools.count()


class Wrong(Exception):
    """The client gave something other than expected."""


def check(name):
    """Registers a check. It is given the client that `connect` made."""

    def register(function):
        CHECKS.append((name, function))
        return function

    return register


def new_key(what="key"):
    """A key that no other check and no other run uses."""
    return f"{what}-{os.getpid()}-{next(NUMBERS)}"


def same(got, wanted, what=""):
    """Raises Wrong unless both are equal."""
    if got != wanted:
        raise Wrong(f"{what} {got!r:.200} instead of {wanted!r:.200}".strip())


def holds(condition, what):
    """Raises Wrong unless the condition is true."""
    if not condition:
        raise Wrong(what)


def raises(exception, function, *args, **kwargs):
    """Raises Wrong unless the call raises `exception`."""
    try:
        got = function(*args, **kwargs)
    except exception:
        return
    raise Wrong(f"{got!r:.200} instead of {exception.__name__}")


def eventually(condition, what):
    """Waits until the condition is true; raises Wrong when it does not become so."""
    deadline = time.monotonic() + EVENTUALLY_S
    while not condition():
        if time.monotonic() > deadline:
            raise Wrong(f"after {EVENTUALLY_S:.0f} s: {what}")
        time.sleep(0.05)


def run(connect, host, port, label):
    """Runs every check on a new client; returns how many failed."""
    failures = 0
    for name, function in CHECKS:
        try:
            function(connect(host, port))
            print(f"ok      {label}{name}", flush=True)
        except Exception as e:  # whatever the library under test raises is a finding
            failures += 1
            print(f"FAILED  {label}{name}: {type(e).__name__}: {e}", flush=True)
    return failures


def main(connect):
    """The command line above. `connect(host, port)` makes a client, with timeouts set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("--label", default="")
    args = parser.parse_args()
    host, _, port = args.server.rpartition(":")
    sys.exit(1 if run(connect, host, int(port), args.label) else 0)
