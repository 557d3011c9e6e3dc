#!/usr/bin/env python3
"""What `gnomon-study offline --path-only` found in several rounds, as ratios beside their goals.

    bench_ratios.py DIRECTORY    with this-N/offline.json, and previous-N/offline.json if there are

Medians over the rounds; the spread is that of this commit's.
"""

import json
import pathlib
import statistics
import sys

# What is measured, as the study calls it; what it is a share of; floor, target and stretch.
GOALS = [
    ("whole path, GET, % of random lines", "get", "lines", (8, 13, 17)),
    ("the same, checksums by the port", "get, hw", "lines", None),
    ("look-ups alone, % of random lines", "look-ups", "lines", (17, 28, 38)),
    ("whole path, GET, M/s", "get", "rate", (8, 14, 18)),
    ("the same, checksums by the port", "get, hw", "rate", (11, 18, 22)),
    ("look-ups alone, M/s", "look-ups", "rate", (18, 30, 40)),
    ("GET by another engine's hints, M/s", "get, hints", "rate", (15, 25, 35)),
    ("GET by its whole replies, M/s", "get, whole replies", "rate", (25, 30, 40)),
    ("whole path, SET, M/s", "set", "rate", (3, 6, 10)),
    ("group prefetch over one by one, look-ups", "look-ups, 1", "gain look-ups", (2, 3, 4)),
    ("group prefetch over one by one, GET", "get, 1", "gain get", (2, 3, 4)),
]


def value(figures, short, share):
    """One round's figure. None: a commit that did not measure it."""
    rows = {row["short"]: row for row in figures["path"]}
    if short not in rows:
        return None
    if share == "lines":
        return 100 * rows[short]["of_lines"]
    if share == "rate":
        return rows[short]["per_s"] / 1e6
    return rows[short]["cpu_ns"] / rows[share.removeprefix("gain ")]["cpu_ns"]


def rounds(directory, side):
    """The figures of one side's rounds."""
    return [json.loads(path.read_text()) for path in sorted(directory.glob(f"{side}-*/offline.json"))]


def table(this, previous):
    """The lines to print."""
    commits = [side[0]["commit"] if side else "-" for side in (previous, this)]
    lines = [f"{'':43} {'floor':>6} {'target':>6} {'stretch':>7} {commits[0]:>13} {commits[1]:>13}  ratio (spread)"]
    for name, short, share, goals in GOALS:
        now, past = ([value(figures, short, share) for figures in side] for side in (this, previous))
        middle = statistics.median(now)
        before = statistics.median(past) if past and None not in past else None
        goal = "".join(f" {g:>{w}}" for g, w in zip(goals or ("", "", ""), (6, 6, 7)))
        ratio = f"{middle / before:.2f}" if before else "-"
        old = f"{before:13.2f}" if before else f"{'-':>13}"
        lines.append(f"{name:43}{goal} {old} {middle:13.2f}  {ratio} ({min(now):.2f} to {max(now):.2f})")
    memcached = next((figures["memcached"] for figures in this if "memcached" in figures), None)
    if memcached:
        ours = statistics.median(figures["path_ns"] for figures in this)
        lines.append(
            f"memcached takes {memcached['cpu_ns']:.0f} ns of CPU per UDP GET, the whole path {ours:.0f}: "
            f"1/{memcached['cpu_ns'] / ours:.0f} (floor 1/60, target 1/100)"
        )
    return lines


def main(directory):
    this = rounds(pathlib.Path(directory), "this")
    if not this:
        print(f"no figures in {directory}", file=sys.stderr)
        return 1
    print("\n".join(table(this, rounds(pathlib.Path(directory), "previous"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
