#!/usr/bin/env python3
"""What came of a soak: reads what its parts wrote, prints a line for each claim, and writes a report.

    judge.py FOLDER --label TEXT --report NAME --tcp kernel|worker --settle SECONDS [--strict-time]

FOLDER holds `before` and `after` (watch.py, nobody connected), `samples`, `load.json`, `replay.json`,
`slap.*` (memcaslap), `server` (the last report), `lost.before` and `lost.after` (datagrams that the
kernels count as lost). Samples of the first SECONDS are left out. NAME.json and NAME.md get the
report. Times are only reported, unless --strict-time: a machine that does other things meanwhile
decides them.
"""

import argparse
import json
import pathlib
import statistics

GROWTH_MAX = 0.01
DRIFT_MAX = 0.10
REQUESTS_MIN = 1000
"""Fewer have no 99.9th percentile worth the name."""

SENT_TO_BE_DROPPED = ("kv_frame_short", "kv_multipart")
"""Reasons for which load.py sends datagrams."""

EXPLAINED = ("eth_not_ours", "not_for_us", "request_to_group")
"""Reasons for which a kernel at the other end of a wire gives cause by itself: it looks for neighbours."""

RESETS = ("tcp_unacceptable", "tcp_no_connection")
"""What becomes of the resets of a connection that its client closes while something is under way: two at most."""


class Soak:
    """What FOLDER holds."""

    def __init__(self, folder, settle):
        samples = lines(folder / "samples")
        self.samples = [s for s in samples if s["time"] >= samples[0]["time"] + settle]
        (self.before,), (self.after,) = lines(folder / "before"), lines(folder / "after")
        self.load = json.loads((folder / "load.json").read_text())
        self.replay = json.loads((folder / "replay.json").read_text())
        self.server = [l for l in lines(folder / "server") if l.get("event") == "report"][-1]
        begun, ended = (int((folder / name).read_text()) for name in ("lost.before", "lost.after"))
        self.lost = ended - begun
        self.slaps = [slap(f) for f in sorted(folder.glob("slap.*"))]

    def quarter(self, which, name):
        """The median of a sampled number in the first (0) or last (3) quarter."""
        size = max(1, len(self.samples) // 4)
        part = self.samples[:size] if which == 0 else self.samples[-size:]
        return statistics.median(s[name] for s in part)


def lines(path):
    """A file of JSON lines."""
    return [json.loads(l) for l in path.read_text().splitlines() if l.startswith("{")]


def slap(path):
    """What memcaslap printed, as numbers."""
    pairs = (l.split(": ", 1) for l in path.read_text().splitlines() if ": " in l)
    return {k: int(v) for k, v in pairs if v.isdigit()}


def law(sample):
    """By how much the frames are out of balance: received = answered + punted + dropped + in flight."""
    done = sample["answered"] + sample["punted"] + sum(sample["dropped"].values()) + sample["in_flight"]
    return sample["received"] - done


def drift(load):
    """The 99.9th percentile of the first and of the last quarter, by transport and command."""
    early, late = load["latency"]["early"], load["latency"]["late"]
    table = {}
    for name in sorted(early):
        what, _, figure = name.rpartition(":")
        if figure == "count" and min(int(early[name]), int(late.get(name, 0))) >= REQUESTS_MIN:
            a, b = (int(t[f"{what}:p999_ns"]) for t in (early, late))
            table[what] = {"early_us": a / 1000, "late_us": b / 1000, "drift": b / a - 1}
    return table


def claims(soak, tcp):
    """(what must hold, whether it does, what was seen), one each. `tcp`: who serves it."""
    samples, server, load, replay = soak.samples, soak.server, soak.load, soak.replay
    growth = soak.quarter(3, "rss_kb") / soak.quarter(0, "rss_kb") - 1
    seen = f"{soak.quarter(0, 'rss_kb'):.0f} to {soak.quarter(3, 'rss_kb'):.0f} KB, {growth:+.2%}"
    yield "memory grows by less than 1 %", growth < GROWTH_MAX, seen

    # While frames move, a scrape sees one counter a moment before another.
    off = [law(s) for s in (soak.before, soak.after, server)]
    seen = f"off by {off}, while frames moved by {max(abs(law(s)) for s in samples)} at most"
    yield "frames balance before, after and at the end", not any(off), seen
    home = server["slots_home"] == server["slots"] and server["balanced"]
    idle = soak.after["slots_free"] == soak.before["slots_free"]
    seen = f"{soak.before['slots_free']} free before, {soak.after['slots_free']} after, {server['slots_home']} of {server['slots']} at the end"
    yield "every packet slot comes back", home and idle, seen

    for name, what in (("fds", "open files"), ("threads", "threads")):
        same = soak.before[name] == soak.after[name]
        yield f"as many {what} as before", same, f"{soak.before[name]} and {soak.after[name]}"
    threads = {s["threads"] for s in samples}
    yield "no thread comes or goes", len(threads) == 1, str(sorted(threads))
    # Clients come and go between the look at one number and at the other: in the middle they agree.
    # Those of workers have no files.
    files = 0 if tcp == "worker" else 1
    spare = statistics.median(s["fds"] - files * s["connections"] for s in samples[-(len(samples) // 4 + 1) :])
    same = abs(spare - soak.before["fds"]) <= 2
    yield "open files follow connections", same, f"{spare:.0f} beside connections, {soak.before['fds']} before"

    checked = load["hits"] + replay["hits"] + sum(s.get("cmd_get", 0) for s in soak.slaps)
    failed = sum(s.get("verify_failed", 0) for s in soak.slaps)
    wrong = load["wrong"] + replay["wrong"] + failed
    yield "no wrong value", wrong == 0 and checked > 0, f"{wrong} of {checked} checked; {load['examples'][:5]}"
    ended = all("cmd_get" in s for s in soak.slaps) and soak.slaps
    yield "memcaslap ends well each time", bool(ended), f"{len(soak.slaps)} times"
    worked = {k: load[k] for k in ("evicted", "pages_moved", "expired", "connections")}
    yield "items were evicted and expired, pages moved, connections came and went", all(worked.values()), str(worked)

    dropped = server["dropped"]
    resets = 2 * server["connections"][0] if tcp == "worker" else 0
    unexplained = {
        reason: n
        for reason, n in dropped.items()
        if reason not in EXPLAINED and n > (load.get(reason, 0) if reason in SENT_TO_BE_DROPPED else resets if reason in RESETS else 0)
    }
    yield "no frame dropped but those sent for it", not unexplained, json.dumps(dropped)
    lost = replay["lost"] + load.get("udp_lost", 0)
    known = soak.lost + soak.after["missed"]
    yield "no reply missing but those that the kernel lost", lost <= known, f"{lost} missing, {known} lost on the way"
    failed_ports = server["failed"]
    yield "no port failed", not failed_ports, str(failed_ports)


def main():
    """The command line above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--label", required=True)
    parser.add_argument("--report", required=True)
    parser.add_argument("--tcp", required=True, choices=("kernel", "worker"))
    parser.add_argument("--settle", type=float, required=True)
    parser.add_argument("--strict-time", action="store_true")
    args = parser.parse_args()
    soak = Soak(args.folder, args.settle)
    verdicts = list(claims(soak, args.tcp))
    drifts = drift(soak.load)
    if args.strict_time:
        worst = max((d["drift"] for d in drifts.values()), default=0.0)
        verdicts.append(("p99.9 drifts by less than 10 %", worst < DRIFT_MAX, f"{worst:+.1%}"))
    minutes = (soak.samples[-1]["time"] - soak.samples[0]["time"]) / 60
    cpu_s = soak.samples[-1]["cpu_s"] - soak.samples[0]["cpu_s"]
    text = [f"# Soak, {args.label}, {minutes:.1f} minutes", ""]
    text += [f"{soak.load['operations']} operations of load.py, {soak.replay['sent']} datagrams of gnomon-replay, "
             f"{len(soak.slaps)} runs of memcaslap; the server used {cpu_s:.0f} s of CPU.", ""]  # fmt: skip
    text += ["| | | seen |", "|---|---|---|"]
    text += [f"| {name} | {'yes' if truth else '**no**'} | {seen} |" for name, truth, seen in verdicts]
    text += ["", "| p99.9 in the server | first quarter | last quarter | |", "|---|---|---|---|"]
    text += [f"| {what} | {d['early_us']:.0f} µs | {d['late_us']:.0f} µs | {d['drift']:+.0%} |" for what, d in drifts.items()]
    pathlib.Path(args.report + ".md").write_text("\n".join(text) + "\n")
    report = {
        "label": args.label,
        "minutes": minutes,
        "claims": [{"name": n, "holds": t, "seen": s} for n, t, s in verdicts],
        "p999": drifts,
        "load": soak.load,
        "replay": soak.replay,
        "server": soak.server,
        "samples": soak.samples,
    }
    pathlib.Path(args.report + ".json").write_text(json.dumps(report))
    for name, truth, seen in verdicts:
        print(f"ok      {args.label}: {name} ({seen})" if truth else f"FAILED  {args.label}: {name}: {seen}")
    for what, d in drifts.items():
        print(f"note    {args.label}: p99.9 of {what}: {d['early_us']:.0f} us, later {d['late_us']:.0f} us ({d['drift']:+.0%})")


if __name__ == "__main__":
    main()
