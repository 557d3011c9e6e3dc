#!/usr/bin/env python3
"""The demo's one screen, from what the client and the appliance reported; exit 1 if it is bad news.

    demo_screen.py WAY OUTSTANDING FLAT.json HALF.json APPLIANCE.json
"""

import json
import sys

LATENCIES = ("p50", "p90", "p99", "p999", "max")


def lines(path):
    """The JSON values of a file, one after the other."""
    text, decoder, at, values = open(path, encoding="utf-8").read(), json.JSONDecoder(), 0, []
    while at < len(text):
        value, end = decoder.raw_decode(text, at)
        values.append(value)
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return values


def row(name, text):
    """One line of the screen."""
    print(f"  {name:<22}{text}")


def faults(runs, report):
    """What must not be, in words."""
    found = []
    for name, run in runs.items():
        if run["wrong"] or run["bad_datagrams"]:
            found.append(f"{name}: {run['wrong']} wrong replies, {run['bad_datagrams']} bad datagrams")
        if run["answered"] + run["lost"] != run["sent"] - run["wrong"]:
            found.append(f"{name}: {run['sent']} sent, but {run['answered']} answered and {run['lost']} lost")
        if not run["answered"]:
            found.append(f"{name}: nothing was answered")
    if not report["balanced"]:
        found.append("the appliance's books do not balance")
    if report["failed"]:
        found.append(f"threads that did not end well: {', '.join(report['failed'])}")
    return found


def main(argv):
    """Prints the screen."""
    way, outstanding = argv[1:3]
    runs = {"flat out": json.load(open(argv[3])), "half rate": json.load(open(argv[4]))}
    said = lines(argv[5])
    ready, report = said[0], said[-1]
    flat = runs["flat out"]
    ports = {"memif": "DPDK net_memif", "tap": "DPDK net_tap", "sockets": "kernel sockets"}

    print(f"\ngnomon {ready['version']}")
    memory = f"packets in {ready['packet_memory']}, items in {ready['item_memory']}"
    row("port", f"{ports[way]}, {ready['workers']} worker(s), engine {ready['engine']}; {memory}")
    row("requests", f"{flat['sent']:,}: {flat['gets']:,} get, {flat['sets']:,} set")
    for name, run in runs.items():
        how = f"closed loop, {outstanding} outstanding" if name == "flat out" else "open loop"
        row(name, f"{run['answered_per_s']:,.0f} requests/s ({how})")
        latency = "  ".join(f"{p} {run['latency_us'][p]:,.0f}" for p in LATENCIES)
        row("  latency, µs", latency)
        row("  lost", f"{run['lost']:,} of {run['sent']:,}")
    row("hit rate", f"{flat['hit_rate']:.2%} of {flat['keys_asked']:,} keys requested")
    dropped = "  ".join(f"{reason} {n:,}" for reason, n in report["dropped"].items()) or "none"
    row("drops by reason", dropped)
    fates = f"{report['answered']:,} answered + {report['punted']:,} punted + {sum(report['dropped'].values()):,} dropped"
    row("frames", f"{report['received']:,} received = {fates} + {report['in_flight']:,} in flight")
    row("packet slots", f"{report['slots_home']:,} of {report['slots']:,} free")
    checked = sum(run["answered"] + run["wrong"] for run in runs.values())
    row("replies verified", f"{checked:,}")
    row("wrong replies", f"{sum(run['wrong'] for run in runs.values()):,}")
    print()
    found = faults(runs, report)
    for fault in found:
        print(f"FAILED  {fault}")
    if not found:
        print("ok      every reply was right")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
