#!/usr/bin/env python3
"""Types a page's console blocks into a shell, and compares what comes back with what the page says.

    scripts/console.py PAGE [--section HEADING]... [--patience SECONDS] -- SHELL...

In a block that begins with ```console, lines with `$ ` are commands; those that follow are the output,
all of it, but that `…` stands for anything within a line, and alone on a line for any lines. A command
without output in the page may say what it likes. Each must end with status 0, within PATIENCE; what
a command in the background says may come later. All blocks go to one shell, in the page's order.

Prints a line per command, `ok` or `FAILED`. Exits with 1 at the first that failed: what follows would
stand on it.
"""

import argparse
import os
import re
import selectors
import subprocess
import sys
import time

LATER_S = 60
"""How long output may take to come after its command has ended."""


def commands(text, sections):
    """Pairs of a command and the output that the page shows, `None` where it shows none."""
    found, heading, inside = [], "", False
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("```"):
            inside = line == "```console" and (not sections or heading in sections)
        elif inside and line.startswith("$ "):
            found.append([line[2:], None])
        elif inside and found:
            found[-1][1] = (found[-1][1] or "") + line + "\n"
    return [tuple(pair) for pair in found]


def pattern(output):
    """The regular expression that this output in a page stands for."""
    parts = []
    for line in output.splitlines():
        if line == "…":
            parts.append(r"(?:.*\n)*")
        else:
            parts.append(".*".join(re.escape(piece) for piece in line.split("…")) + r"\n")
    return re.compile("".join(parts))


class Shell:
    """A shell that reads commands from a pipe; what it and its children say is one text."""

    def __init__(self, argv):
        # Neither has a terminal. The group is the shell's own, so that its children can be ended.
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def hear(self, seconds):
        """What came within this time; at once when something does."""
        if not self.selector.select(seconds):
            return ""
        return os.read(self.process.stdout.fileno(), 1 << 16).decode(errors="replace")

    def run(self, command, wanted, patience_s):
        """Types one command. Returns what it said and what is wrong with that, `None` if nothing."""
        # Without a line end before it, unlike what a command says last, so that none is made up.
        mark = f"<{os.urandom(8).hex()}:"
        typed = f"{command}\nprintf '{mark}%s>' $?\n"
        self.process.stdin.write(typed.encode())
        self.process.stdin.flush()
        text, status, deadline = "", None, time.monotonic() + patience_s
        while True:
            ended = re.search(f"{mark}(\\d+)>", text)
            if ended:
                text = text[: ended.start()] + text[ended.end() :]
                status = int(ended[1])
                deadline = min(deadline, time.monotonic() + LATER_S)
                if status != 0:
                    return text, f"status {status}"
            if status is not None and (wanted is None or wanted.fullmatch(text.replace("\r", ""))):
                return text, None
            if time.monotonic() >= deadline:
                return text, "it did not end" if status is None else "the page says otherwise"
            if self.process.poll() is not None:
                return text, "the shell ended"
            text += self.hear(min(1.0, max(0.0, deadline - time.monotonic())))

    def end(self):
        """Ends the shell and all that it started."""
        self.process.stdin.close()
        try:
            os.killpg(self.process.pid, 15)
            self.process.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            self.process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("page")
    parser.add_argument("--section", action="append", default=[])
    parser.add_argument("--patience", type=float, default=600)
    parser.add_argument("shell", nargs="+")
    asked = parser.parse_args()
    with open(asked.page, encoding="utf-8") as page:
        typed = commands(page.read(), asked.section)
    if not typed:
        sys.exit(f"{asked.page}: no commands in {asked.section or 'it'}")
    shell = Shell(asked.shell)
    try:
        for command, output in typed:
            said, wrong = shell.run(command, output and pattern(output), asked.patience)
            if wrong:
                print(f"FAILED  $ {command}: {wrong}")
                print("".join(f"        | {line}\n" for line in said.splitlines()[-60:]), end="")
                return 1
            print(f"ok      $ {command}", flush=True)
    finally:
        shell.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
