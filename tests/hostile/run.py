#!/usr/bin/env python3
"""Runs every file of attacks in this directory, one after the other.

    run.py --server BINARY [--small] [FILE...]     FILE without .py; default: all

A file takes `--server BINARY` and perhaps `--small`, prints lines that begin with `ok` or `FAILED` (or `not ok`),
and ends with status 0 or 1. At full size, the loads of tests/e2e/pressure.py under which a store must not run
out of memory come with them; CI has those in tests/e2e/pressure.sh.
"""

import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
NOT_ATTACKS = {"attack", "run"}
LONGEST_S = {True: 120, False: 3600}


def run(name, command, small):
    """Shows the lines of one file as they come. Whether it failed."""
    said = []
    process = subprocess.Popen(
        ["timeout", "--kill-after=10", str(LONGEST_S[small]), *command], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        line = line.replace("not ok - ", "FAILED  ", 1) if line.startswith("not ok - ") else line
        said.append(line)
        sys.stdout.write(line)
        sys.stdout.flush()
    status = process.wait()
    lines = [line.split(" ", 1)[0] for line in said]
    if status != 0 and "FAILED" not in lines:
        print(f"FAILED  hostile: {name}: exit status {status}", flush=True)
    elif status == 0 and not {"ok", "skipped"} & set(lines):
        print(f"FAILED  hostile: {name}: says nothing", flush=True)
        return True
    return status != 0 or "FAILED" in lines


def main():
    """The command line above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default=os.environ.get("GNOMON", "target/release/gnomon"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("files", nargs="*")
    asked = parser.parse_args()
    server = str(pathlib.Path(asked.server).resolve())
    names = asked.files or sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_ATTACKS)
    failed = 0
    for name in names:
        if name != "pressure":
            command = [sys.executable, str(HERE / f"{name}.py"), "--server", server, *["--small"] * asked.small]
            failed += run(name, command, asked.small)
    if not asked.small and (not asked.files or "pressure" in asked.files):
        os.environ["GNOMON"] = server
        failed += run("pressure", [sys.executable, str(HERE.parent / "e2e" / "pressure.py")], asked.small)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
