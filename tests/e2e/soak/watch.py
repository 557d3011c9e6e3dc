#!/usr/bin/env python3
"""Looks at a running appliance at regular times, from outside: what the kernel says of its process,
and its metrics, which are scraped as Prometheus would. One JSON object a line.

    watch.py PID METRICS --every SECONDS --until FILE --out FILE     until FILE exists
    watch.py PID METRICS --out FILE                                  once
"""

import argparse
import json
import os
import pathlib
import re
import time
import urllib.request

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')
SUMMED = {
    "gnomon_worker_frames_received_total": "received",
    "gnomon_worker_frames_answered_total": "answered",
    "gnomon_worker_frames_punted_total": "punted",
    "gnomon_worker_frames_in_flight": "in_flight",
    "gnomon_port_frames_missed_total": "missed",
    "gnomon_packet_slots": "slots",
    "gnomon_packet_slots_free": "slots_free",
    "gnomon_store_epoch_lag": "epoch_lag",
    "gnomon_store_limbo_chunks": "limbo_chunks",
    "gnomon_store_pages_free": "pages_free",
    "memcached_current_connections": "connections",
    "memcached_current_items": "items",
}
"""Metrics that are added up over their labels, and their names in a sample."""


def open_files(pid):
    """How many files the process has open for longer than a moment: a device that is looked at and a
    connection that is just being closed are none of them."""
    least = len(os.listdir(f"/proc/{pid}/fd"))
    for _ in range(5):
        time.sleep(0.02)
        least = min(least, len(os.listdir(f"/proc/{pid}/fd")))
    return least


def process(pid):
    """Memory, open files, threads and CPU time of the process."""
    status = dict(l.split(":", 1) for l in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    kb = {name: int(status[key].split()[0]) for name, key in (("rss_kb", "VmRSS"), ("anon_kb", "RssAnon"))}
    return kb | {
        "threads": int(status["Threads"]),
        "fds": open_files(pid),
        "cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
    }


def scrape(address):
    """The metrics: sums, and drops by reason."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    sums, dropped = dict.fromkeys(SUMMED.values(), 0), {}
    for line in text.splitlines():
        if line.startswith("#") or not (sample := SAMPLE.match(line)):
            continue
        name, labels, number = sample[1], dict(LABEL.findall(sample[2] or "")), float(sample[3])
        if name in SUMMED:
            sums[SUMMED[name]] += int(number)
        elif name == "gnomon_worker_frames_dropped_total" and number:
            dropped[labels["reason"]] = dropped.get(labels["reason"], 0) + int(number)
    return sums | {"dropped": dropped}


def main():
    """The command line above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pid", type=int)
    parser.add_argument("metrics")
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--until")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    due = time.monotonic()
    with open(args.out, "a") as out:
        while True:
            sample = {"time": time.monotonic()} | scrape(args.metrics) | process(args.pid)
            print(json.dumps(sample), file=out, flush=True)
            if not args.until:
                return
            due = max(due + args.every, time.monotonic())
            while time.monotonic() < due:
                if os.path.exists(args.until):
                    return
                time.sleep(min(0.2, args.every))


if __name__ == "__main__":
    main()
