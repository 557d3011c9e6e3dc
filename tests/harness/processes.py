"""Programs that end with the test, and waits that end."""

import contextlib
import os
import signal
import subprocess
import time


def wait_for(seconds, condition):
    """Tries until the condition holds. Whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


class Process(subprocess.Popen):
    """A program with all that it starts. It writes to the file `log`, or to us."""

    def __init__(self, *argv, log=None, stdin=subprocess.DEVNULL, env=None, **options):
        self.log, argv = log, [str(word) for word in argv]
        env = {**os.environ, **{name: str(value) for name, value in (env or {}).items()}}
        with open(log, "wb") if log else contextlib.nullcontext(subprocess.PIPE) as out:
            options |= {
                "stdin": stdin,
                "stdout": out,
                "stderr": subprocess.STDOUT,
                "start_new_session": True,
                "env": env,
            }
            super().__init__(argv, **options)

    def __exit__(self, *_):
        self.end()

    def said(self):
        """What it wrote to its file."""
        return self.log.read_text(errors="replace")

    def gone(self):
        """Whether it has ended."""
        return self.poll() is not None

    def ends(self, seconds):
        """Its status; None where it is still there then."""
        wait_for(seconds, self.gone)
        return self.returncode

    def end(self):
        """SIGTERM, and SIGKILL when it has ended, or after 5 s: to it, and to what it has started. Whether the first
        was enough for it."""
        in_order = self.all_get(signal.SIGTERM)
        self.all_get(signal.SIGKILL)
        if self.stdout:
            self.stdout.close()
        return in_order

    def all_get(self, number):
        """The signal; whether it ends soon after it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        return self.ends(5) is not None


def run(*argv, timeout=None, **options):
    """A program to its end; as subprocess.run has it, with all that it said as text."""
    with Process(*argv, **options) as process:
        try:
            said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 124, f"not within {timeout} s")
        return subprocess.CompletedProcess(argv, process.returncode, (said or b"").decode(errors="replace"))
