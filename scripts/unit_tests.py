#!/usr/bin/env python3
"""`cargo test` of the whole workspace, several test programs at a time.

    scripts/unit_tests.py [JOBS]

cargo runs test programs one after the other, although many mostly wait. This builds them with
cargo, runs up to JOBS at a time (default: as many as there are processors), those first that took
longest the last time, and prints what each said, when it has ended, as cargo does. One that does not
end is ended, and says where its threads stood if gdb is there. Exits 1 when one failed.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALONE = {"dataplane: lib dataplane", "dataplane/store: lib store", "dataplane: test simt_parity"}
"""Programs that hold short times against a clock: others would make them late."""

LIMIT = 600
"""Seconds within which a program ends; the longest needs 75 alone on two processors."""

TIMES = ROOT / "target" / "unit-tests.json"
"""Seconds that each program took when it last ran."""


def programs():
    """Builds the test programs: for each its name, its file and the folder it runs in."""
    command = ["cargo", "test", "--workspace", "--no-run", "-q", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            folder = Path(message["manifest_path"]).parent
            target = message["target"]
            yield f"{folder.relative_to(ROOT)}: {target['kind'][0]} {target['name']}", message["executable"], folder


def run(name, executable, folder):
    """Runs one program to its end. Prints and gives how long it took, and whether it passed."""
    begun = time.monotonic()
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(folder)}
    # A file, since a pipe has no end as long as anything that the program started holds it.
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        program = subprocess.Popen(
            [executable, "-q"], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
        )
        try:
            status = program.wait(LIMIT)
        except subprocess.TimeoutExpired:
            stacks(program.pid, said)
            program.kill()
            program.wait()
            status = f"none after {LIMIT} s"
        said.seek(0)
        seconds = time.monotonic() - begun
        verdict = "" if status == 0 else f"\nFAILED {name}: exit status {status}"
        print(f"-- {name}, {seconds:.1f} s\n{said.read().strip()}{verdict}", flush=True)
    return seconds, status == 0


def stacks(process, out):
    """Writes where each thread of the process stands."""
    if shutil.which("gdb"):
        command = ["timeout", "60", "gdb", "-batch", "-p", str(process), "-ex", "thread apply all backtrace 16"]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, check=False)


def main(argv):
    """Builds, runs, and says which programs failed."""
    jobs = int(argv[1]) if len(argv) > 1 else os.cpu_count()
    last = json.loads(TIMES.read_text(encoding="utf-8")) if TIMES.exists() else {}
    queue = sorted(programs(), key=lambda program: (program[0] in ALONE, -last.get(program[0], 0)))
    together = [program for program in queue if program[0] not in ALONE]
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda program: run(*program), together))
    results += [run(*program) for program in queue[len(together) :]]
    took = {program[0]: round(seconds, 1) for program, (seconds, _) in zip(queue, results)}
    TIMES.write_text(json.dumps(took, indent=1), encoding="utf-8")
    documented = subprocess.run(["cargo", "test", "--workspace", "--doc", "-q"], cwd=ROOT, check=False)
    failed = [program[0] for program, (_, passed) in zip(queue, results) if not passed]
    print("\n".join(f"FAILED {name}" for name in failed), end="\n" if failed else "")
    return 1 if failed or documented.returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
