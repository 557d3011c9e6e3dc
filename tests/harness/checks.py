"""Checks: each a subtest by its name. And the programs that check: each line that they say becomes one."""

import contextlib

import pytest
from harness import processes

ENDS = "ends here"
"""Why a test fails that a check of its own has ended."""


over = ""
"""Why the file's time is over, once it is."""


def in_time():
    """Ends the test when the file's time is over."""
    if over:
        because(over)


class Check:
    """What a test calls for each thing that must hold; those after one that failed are looked at, too."""

    def __init__(self, subtests, notes):
        self.subtests, self.notes = subtests, notes
        self.failed = 0

    @contextlib.contextmanager
    def named(self, name):
        """A check that holds when the block raises nothing. `because(why)` in it fails it."""
        good = False
        with self.subtests.test(name):
            try:
                yield
                good = True
            finally:
                self.failed += not good
        in_time()

    def __call__(self, name, truth=True, why=""):
        """A check that holds when it is true. Whether it is."""
        with self.named(name):
            if not truth:
                because(why)
        return bool(truth)

    def must(self, name, truth, why=""):
        """One without which there is no sense in going on."""
        if not self(name, truth, why):
            because(ENDS)

    def runs(self, name, *argv, **options):
        """Holds when the command ends with status 0; shows what it said when it does not. Returns that."""
        done = processes.run(*argv, **options)
        self(name, done.returncode == 0, f"exit status {done.returncode}\n{done.stdout[-6000:]}")
        return done.stdout

    def note(self, text):
        """Something to know that is no check."""
        self.notes.append(("note", text))

    def counted(self, *argv, **options):
        """Runs a program that prints ok, FAILED and skipped lines of its own. It ends in status 1 when a check
        failed; another status means that it did not get to its end. How many lines were judged."""
        with processes.Process(*argv, **options) as process:
            judged, bad = self.lines(line.decode(errors="replace") for line in process.stdout)
            status = process.wait()
        if status > 1 or status < 0 or (status == 1 and not bad):
            judged += 1
            self(" ".join(map(str, argv)), False, "\n".join([f"exit status {status}", *self.said]))
        return judged

    def lines(self, lines):
        """The same of lines that a program says. How many were judged, and how many of these failed."""
        judged, bad, failed = 0, 0, None
        self.said = unknown = []

        def settled():
            if failed is not None:
                self(failed, False, "\n".join(["", *unknown]))

        for line in lines:
            word, _, rest = line.rstrip("\n").partition(" ")
            rest = rest.strip()
            if word in ("ok", "FAILED", "skipped") and rest:
                settled()
                judged, failed = judged + 1, None
                unknown.clear()
                if word == "ok":
                    self(rest)
                elif word == "FAILED":
                    bad, failed = bad + 1, rest
                else:
                    name, _, why = rest.partition(": ")
                    with self.subtests.test(name):
                        pytest.skip(why)
            elif failed is None and word == "note":
                self.note(rest)
            else:
                # What follows a check that failed says why.
                unknown.append(line.rstrip("\n").removeprefix("        | "))
        settled()
        return judged, bad


def because(why):
    """Fails the check that it is in, for this reason, without a trace of calls."""
    pytest.fail(str(why), pytrace=False)
