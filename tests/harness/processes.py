"""Programs that end with the test, and waits that end."""

import contextlib
import os
import signal
import subprocess
import time


def wait_for(seconds, condition, pause=0.05):
    """Tries until the condition holds. Whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True


class Process:
    """A program with all that it starts. It writes to a file, or to us."""

    def __init__(self, *argv, log=None, stdin=subprocess.DEVNULL, env=None, cwd=None):
        out = subprocess.PIPE if log is None else open(log, "wb")
        self.log = log
        self.child = subprocess.Popen(
            [str(word) for word in argv], stdin=stdin, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **{k: str(v) for k, v in env.items()}} if env else None, cwd=cwd,
        )  # fmt: skip
        self.pid = self.child.pid
        if log is not None:
            out.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def said(self):
        """What it wrote to its file."""
        return self.log.read_text(errors="replace")

    def lines(self):
        """What it says to us, as it comes."""
        return (line.decode(errors="replace") for line in self.child.stdout)

    def gone(self):
        """Whether it has ended."""
        return self.child.poll() is not None

    def signal(self, number):
        """To the program alone."""
        if not self.gone():
            self.child.send_signal(number)

    def wait(self, seconds=None):
        """Its status; None where it is still there."""
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self):
        """SIGTERM, and SIGKILL when it has ended, or after 5 s: to it, and to what it has started. Whether the first
        was enough for it."""
        self.signal_all(signal.SIGTERM)
        in_order = self.wait(5) is not None
        self.signal_all(signal.SIGKILL)
        self.wait(5)
        if self.child.stdout:
            self.child.stdout.close()
        return in_order

    def signal_all(self, number):
        """To the program and to what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def run(*argv, timeout=None, **options):
    """A program to its end; as subprocess.run has it, with all that it said as text."""
    with Process(*argv, **options) as process:
        try:
            said, _ = process.child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 124, f"not within {timeout} s")
        return subprocess.CompletedProcess(argv, process.child.returncode, (said or b"").decode(errors="replace"))
