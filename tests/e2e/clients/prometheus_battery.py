#!/usr/bin/env python3
"""Whether Prometheus' own parser takes /metrics, and whether the names follow its rules.

    prometheus_battery.py HOST:PORT [--label TEXT]

HOST:PORT is where gnomon serves metrics. The rules are those that `promtool check metrics` has:
help for each, counters end in _total and nothing else does, base units, no name and no sample twice.
"""

import urllib.request

from battery import Wrong, check, holds, main
from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_S = 20.0

ODD_COUNTERS = {
    "memcached_uptime_seconds",
    "memcached_slab_items_evicted_time_seconds",
    "memcached_slab_items_moves_to_cold",
    "memcached_slab_items_moves_to_warm",
    "memcached_slab_items_moves_within_lru",
}
"""memcached_exporter's names, which break the rule about counters."""

NOT_BASE_UNITS = ("milliseconds", "microseconds", "nanoseconds", "kilobytes", "megabytes", "minutes", "hours")


class Scrape:
    """The page, and what the parser makes of it."""

    def __init__(self, host, port):
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=TIMEOUT_S) as answer:
            self.content_type = answer.headers["Content-Type"]
            self.text = answer.read().decode()
        self.families = list(text_string_to_metric_families(self.text))

    def lines(self, word):
        """Names behind `# WORD `, in the order of the page."""
        start = f"# {word} "
        return [line.removeprefix(start).split(" ")[0] for line in self.text.splitlines() if line.startswith(start)]


def none(found, what):
    """Raises Wrong when something was found."""
    if found:
        raise Wrong(f"{what}: {' '.join(sorted(map(str, found))):.300}")


@check("the page is in the text format, to the last sample")
def _(scrape):
    holds(scrape.content_type.startswith("text/plain; version=0.0.4"), scrape.content_type)
    written = sum(1 for line in scrape.text.splitlines() if line and not line.startswith("#"))
    read = sum(len(family.samples) for family in scrape.families)
    holds(written == read > 100, f"{written} samples on the page, {read} read")


@check("each metric has help and a type, once")
def _(scrape):
    helped, typed = scrape.lines("HELP"), scrape.lines("TYPE")
    holds(helped == typed, "HELP and TYPE do not go together")
    none({name for name in typed if typed.count(name) > 1}, "twice")
    none([family.name for family in scrape.families if family.type == "unknown"], "no type")
    none([family.name for family in scrape.families if not family.documentation], "no help")


@check("no sample is there twice, and each is of its family")
def _(scrape):
    seen = set()
    for family in scrape.families:
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            holds(key not in seen, f"{key} is there twice")
            seen.add(key)
            holds(sample.name.startswith(family.name), f"{sample.name} under {family.name}")


@check("counters end in _total, and nothing else does")
def _(scrape):
    types = dict(
        line.removeprefix("# TYPE ").split(" ") for line in scrape.text.splitlines() if line.startswith("# TYPE ")
    )
    counters = {name for name, kind in types.items() if kind == "counter"}
    none({name for name in counters if not name.endswith("_total")} ^ ODD_COUNTERS, "counters")
    none({name for name in types if name.endswith("_total")} - counters, "no counters")
    none([name for name in types if name.endswith(("_bucket", "_count", "_sum"))], "names of parts")


@check("base units, and no unit or type in the name that is not the metric's")
def _(scrape):
    names = [family.name for family in scrape.families]
    none([name for name in names if any(f"_{unit}" in name for unit in NOT_BASE_UNITS)], "no base units")
    none([name for name in names if name.endswith(("_gauge", "_counter", "_histogram"))], "types in names")


@check("histograms are cumulative, and end in +Inf with their count")
def _(scrape):
    histograms = [family for family in scrape.families if family.type == "histogram"]
    holds(histograms, "there is none")
    for family in histograms:
        buckets, counts = {}, {}
        for sample in family.samples:
            labels = dict(sample.labels)
            le = labels.pop("le", None)
            key = tuple(sorted(labels.items()))
            if le is not None:
                buckets.setdefault(key, []).append((float(le), sample.value))
            elif sample.name.endswith("_count"):
                counts[key] = sample.value
        for key, ladder in buckets.items():
            holds(ladder == sorted(ladder), f"{family.name} {key} is in no order")
            holds([n for _, n in ladder] == sorted(n for _, n in ladder), f"{family.name} {key} does not cumulate")
            holds(ladder[-1] == (float("inf"), counts[key]), f"{family.name} {key} ends in {ladder[-1]}")


if __name__ == "__main__":
    main(Scrape)
