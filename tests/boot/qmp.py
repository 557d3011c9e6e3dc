#!/usr/bin/env python3
"""Tells a QEMU machine to do something, over its monitor (QMP).

    qmp.py SOCKET COMMAND [ARGUMENT=VALUE...] [--until EVENT]

Prints what it answered. `on` and `off` are true and false. With --until it waits for that event of the
machine's, a minute at most. Ends with 1 when the machine refuses or the event does not come.
"""

import json
import socket
import sys

PATIENCE_S = 60


class Monitor:
    """One connection; the machine takes one at a time."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(path)
        self.lines = self.socket.makefile("r", encoding="utf-8")
        self.events = []
        self.answer(lambda said: "QMP" in said)
        self.ask("qmp_capabilities", {})

    def answer(self, wanted):
        """The next message of the kind; events on the way to it are kept."""
        while True:
            line = self.lines.readline()
            if not line:
                raise OSError("the machine has hung up")
            said = json.loads(line)
            if "event" in said:
                self.events.append(said["event"])
            if wanted(said):
                return said

    def ask(self, command, arguments):
        """Tells it to, and what it answered."""
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        said = self.answer(lambda said: "return" in said or "error" in said)
        if "error" in said:
            raise OSError(said["error"]["desc"])
        return said["return"]

    def wait(self, event):
        """Until this event, unless it has been."""
        if event not in self.events:
            self.answer(lambda said: said.get("event") == event)


def main(argv):
    """The command line above."""
    words, event = argv[1:], None
    if len(words) > 3 and words[-2] == "--until":
        words, event = words[:-2], words[-1]
    if len(words) < 2:
        print(__doc__)
        return 2
    path, command, *pairs = words
    switch = {"on": True, "off": False}
    arguments = {name: switch.get(value, value) for name, _, value in (pair.partition("=") for pair in pairs)}
    try:
        monitor = Monitor(path)
        print(json.dumps(monitor.ask(command, arguments)))
        if event:
            monitor.wait(event)
    except OSError as why:
        print(f"qmp: {command}: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
