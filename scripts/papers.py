#!/usr/bin/env python3
"""Runs every command of docs/papers.md and writes one page with the papers' rows, and the tables and plots beside them.

    papers.py [--quick] PROGRAM DIRECTORY    DIRECTORY/README.md, and a directory for each command

`make papers` runs them at full size, PROGRAM being gnomon-study; every test run does with --quick.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "papers.md"
COMMAND = re.compile(r"`(gnomon-study [^`]+)`")
SECONDS_MAX = 3600
QUICK_SECONDS_MAX = 80


def commands(page):
    """Those of the page, each once, in order."""
    return list(dict.fromkeys(COMMAND.findall(page)))


def name(command):
    """A directory's: the study, and its options without their values."""
    study, *rest = shlex.split(command)[1:]
    options = dict.fromkeys(word.strip("-") for word in rest if word.startswith("--"))
    return "-".join([study, *options])


def run(program, command, out, quick):
    """What it printed and the seconds that it took. Raises if it fails or has no end."""
    words = [program, *shlex.split(command)[1:], "--out", out] + ["--quick"] * quick
    shutil.rmtree(out, ignore_errors=True)
    began = time.monotonic()
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as study:
        try:
            printed, errors = study.communicate(timeout=QUICK_SECONDS_MAX if quick else SECONDS_MAX)
        except subprocess.TimeoutExpired:
            # With the servers that it has started.
            os.killpg(study.pid, signal.SIGKILL)
            raise
    if study.returncode != 0:
        raise ValueError(f"status {study.returncode}: {errors.strip()[-2000:]}")
    return printed.rstrip(), time.monotonic() - began


def links(cell, docs):
    """A cell of the page, with its commands linked to what they gave, and its links as they are from elsewhere."""
    cell = re.sub(r"\]\((?=[\w.-]+[/.])", f"]({docs}/", cell)
    return COMMAND.sub(lambda found: f"[{found[0]}](#{name(found[1])})", cell)


def report(page, results, out):
    """The page: the papers' tables as docs/papers.md has them, then each command's output."""
    figures = json.loads(next((out / name(next(iter(results)))).glob("*.json")).read_text())
    machine, docs = figures["machine"], os.path.relpath(PAGE.parent, out)
    lines = [
        "# The papers' tables and figures, run",
        "",
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, commit {figures['commit']}, {machine['cpu']}, "
        f"{machine['processors']} processors, kernel {machine['kernel']}.",
    ]
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        rows = [line for line in section.splitlines() if line.startswith("|")]
        lines += ["", f"## {section.splitlines()[0]}", "", *(links(row, docs) for row in rows)]
    for command, (text, seconds) in results.items():
        lines += ["", f'## <a id="{name(command)}"></a>`{command}`', "", f"{seconds:.0f} s.", "", "```", text, "```"]
        plots = sorted((out / name(command)).glob("*.svg"))
        lines += ["", *(f"![{plot.stem}]({name(command)}/{plot.name})" for plot in plots)]
    (out / "README.md").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    asked = parser.parse_args()
    page = PAGE.read_text()
    asked.directory.mkdir(parents=True, exist_ok=True)
    results, failed = {}, 0
    for command in commands(page):
        try:
            results[command] = run(asked.program, command, asked.directory / name(command), asked.quick)
        except (ValueError, subprocess.TimeoutExpired) as error:
            print(f"FAILED  {command}: {error}", flush=True)
            failed += 1
        else:
            print(f"ok      {command}, {results[command][1]:.0f} s", flush=True)
    if results:
        report(page, results, asked.directory)
    return failed != 0 or not results


if __name__ == "__main__":
    sys.exit(main())
