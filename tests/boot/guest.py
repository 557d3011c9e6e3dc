#!/usr/bin/env python3
"""Runs a command in a guest, over its root shell on a serial port.

    guest.py SOCKET SECONDS COMMAND

SOCKET is QEMU's end of the port. Prints what the command wrote, ends with its status; with 124 when
the guest has not answered in time. One command at a time.
"""

import re
import socket
import sys
import time

TRY_AGAIN_S = 2


def main():
    path, seconds, command = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    deadline = time.monotonic() + seconds
    # The shell echoes what it is sent; the marks are made by the command, so that an echo is none.
    token = f"{time.monotonic_ns():x}"
    begin, end = f"<{token}>", re.compile(rf"</{token}:(\d+)>")
    line = f" printf '<%s>\\n' {token}; ( {command}\n ) </dev/null 2>&1; printf '</%s:%s>\\n' {token} $?\n"
    with socket.socket(socket.AF_UNIX) as guest:
        guest.connect(path)
        guest.settimeout(TRY_AGAIN_S)
        guest.sendall(line.encode())
        seen = ""
        while time.monotonic() < deadline:
            try:
                part = guest.recv(65536)
            except TimeoutError:
                continue
            if not part:
                break
            seen += part.decode(errors="replace").replace("\r", "")
            found = end.search(seen)
            if found:
                sys.stdout.write(seen[: found.start()].partition(begin + "\n")[2])
                return int(found.group(1))
    sys.stdout.write(seen)
    print(f"guest: no answer in {seconds:.0f} s", file=sys.stderr)
    return 124


if __name__ == "__main__":
    sys.exit(main())
