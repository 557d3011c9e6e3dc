"""A `gnomon serve` for a test: started with flags, ended in good order, its report judged. Attacks and fault drills
share it.

Enters: a command line. Leaves: what it said, its ready line and its report. Whatever happens, the process ends with
the test; unless the test failed, it must end with status 0 and account for every frame and packet slot.
"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SOON_S = 30.0
"""Longest wait for anything. Generous: machines are busy."""


class Failed(Exception):
    """Something was not as it must be."""


def must(condition, why):
    """Raises Failed unless the condition holds."""
    if not condition:
        raise Failed(why)


def until(what, condition, seconds=SOON_S, pause=0.01):
    """Waits until the condition holds, and says how long that took."""
    begun = time.monotonic()
    while not condition():
        must(time.monotonic() - begun < seconds, f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)
    return time.monotonic() - begun


class Served:
    """A server that ends with the test."""

    def __init__(self, program, *flags, prefix=(), env=None):
        self.scratch = tempfile.TemporaryDirectory(prefix="gnomon-test-")
        self.log = pathlib.Path(self.scratch.name, "log")
        self.out = pathlib.Path(self.scratch.name, "out")
        command = [*prefix, program, "serve", "--json", *self.own_flags(), *flags]
        with self.out.open("wb") as out, self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=out, stderr=log, stdin=subprocess.DEVNULL, env=env)
        self.pid, self.ending, self.report = self.process.pid, False, None

    def own_flags(self):
        """Flags that every server of a kind has."""
        return ()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        # One that was waited for has been judged by whoever did so.
        if kind is None and self.process.returncode is None:
            self.stop()
        elif self.process.poll() is None:
            self.kill()
        if kind is not None:
            sys.stdout.write("".join(f"        | {line}\n" for line in self.said().splitlines()[-30:]))
        self.scratch.cleanup()

    def said(self):
        """What it wrote to standard error."""
        return self.log.read_text(errors="replace")

    def events(self):
        """The lines that it wrote to standard output."""
        return [json.loads(line) for line in self.out.read_text().splitlines() if line.endswith("}")]

    def ready(self):
        """Waits until it serves; the ready line."""

        def is_ready():
            must(self.process.poll() is None, f"it ended: {self.said()[-300:]}")
            return self.events()

        until("ready", is_ready, 60)
        return self.events()[0]

    def alive(self):
        """Raises Failed when it has ended."""
        status = self.process.poll()
        must(status is None, f"it ended with {status}: {self.said()[-300:]}")

    def end(self, by=signal.SIGTERM):
        """Tells it to end. A second time would cut it short."""
        if not self.ending:
            self.ending = True
            self.process.send_signal(by)

    def stop(self, by=signal.SIGTERM, within_s=SOON_S):
        """Ends it, if it is not ending; wants status 0 and all packets accounted for (D10). The report."""
        self.end(by)
        try:
            status = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Failed("it does not end") from None
        report = self.events()[-1] if self.events() else {"event": None}
        must(report["event"] == "report", f"status {status}, no report: {self.said()[-300:]}")
        dropped = sum(report["dropped"].values())
        law = report["answered"] + report["punted"] + dropped + report["in_flight"]
        must(report["received"] == law and report["balanced"], f"the law does not hold: {report}")
        must(report["slots"] == report["slots_home"], f"slots are missing: {report}")
        must(status == 0 and not report["failed"], f"status {status}: {report}")
        self.report = report
        return report

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
