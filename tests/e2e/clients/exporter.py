#!/usr/bin/env python3
"""Whether `stats` and its kind hold all that memcached_exporter wants, as numbers it can read.

    exporter.py HOST:PORT [--label TEXT]

When a single one of these lines is missing or is no number, the exporter sets memcached_up to 0
or, since its newer releases, leaves a metric out. It asks in ASCII over TCP; so does this.
"""

import pathlib
import sys

from battery import Wrong, check, holds, main, new_key

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import memc  # noqa: E402

OPERATIONS = ("get", "delete", "incr", "decr", "cas", "touch")
GENERAL = [f"{operation}_{result}" for operation in OPERATIONS for result in ("hits", "misses")] + """
    cas_badval cmd_flush cmd_set uptime time bytes limit_maxbytes curr_items total_items bytes_read
    bytes_written curr_connections total_connections rejected_connections conn_yields
    listen_disabled_num evictions reclaimed store_too_large store_no_memory lru_crawler_starts
    direct_reclaims crawler_items_checked crawler_reclaimed moves_to_cold moves_to_warm
    moves_within_lru accepting_conns""".split()
SECONDS = ("rusage_user", "rusage_system")
PER_CLASS_SLABS = """
    chunk_size chunks_per_page total_pages total_chunks used_chunks free_chunks free_chunks_end
    get_hits delete_hits incr_hits decr_hits cas_hits cas_badval touch_hits
    cmd_set""".split()
PER_CLASS_ITEMS = "number age hits_to_hot hits_to_warm hits_to_cold hits_to_temp".split()
# Metrics are made of these where they are there.
PER_CLASS_ITEMS_OPTIONAL = """
    number_hot number_warm number_cold number_temp age_hot age_warm mem_requested evicted
    evicted_nonzero evicted_time evicted_unfetched expired_unfetched outofmemory reclaimed
    crawler_reclaimed tailrepairs moves_to_cold moves_to_warm moves_within_lru store_too_large
    store_no_memory""".split()
CRAWLER_SETTINGS = """
    lru_crawler_sleep lru_crawler_tocrawl hot_lru_pct warm_lru_pct hot_max_factor
    warm_max_factor""".split()


class Stats:
    """What the exporter reads, after every operation was done once with success and once without."""

    def __init__(self, host, port):
        self.tcp = memc.Tcp(f"{host}:{port}")
        key = new_key("exporter").encode()
        for command in (
            memc.set_command(key, b"1"),
            b"get %s %s-missing\r\n" % (key, key),
            b"incr %s 1\r\n" % key,
            b"decr %s 1\r\n" % key,
            b"touch %s 0\r\n" % key,
            b"cas %s 0 0 1 18446744073709551615\r\nx\r\n" % key,
            *(b"%s %s-missing 1\r\n" % (verb, key) for verb in (b"incr", b"decr", b"touch")),
            b"delete %s-missing\r\n" % key,
        ):
            self.tcp.ask(command)

    def read(self, argument=b""):
        """The lines of `stats`."""
        return self.tcp.stats(argument)

    def by_class(self, argument, prefix):
        """The lines that stand under a class, by class."""
        classes = {}
        for name, value in self.read(argument).items():
            head, _, rest = name.removeprefix(prefix).partition(":")
            if name.startswith(prefix) and rest and head.isdigit():
                classes.setdefault(head, {})[rest] = value
        holds(classes, "there is no class, though an item was stored")
        return classes


def numbers(names, stats, where=""):
    """Raises Wrong, with all that is missing or no number, unless there is none."""
    missing = [name for name in names if name not in stats]
    broken = [name for name in names if name in stats and not is_number(stats[name])]
    if missing or broken:
        said = [f"{what}: {' '.join(which)}" for what, which in (("missing", missing), ("no number", broken)) if which]
        raise Wrong(where + "; ".join(said))


def is_number(text):
    """As the exporter reads one."""
    try:
        float(text)
        return True
    except ValueError:
        return False


@check("stats")
def _(server):
    stats = server.read()
    numbers(GENERAL, stats)
    holds(stats.get("version"), "no version")


@check("stats: CPU seconds, as seconds.microseconds")
def _(server):
    stats = server.read()
    for name in SECONDS:
        whole, _, micro = stats[name].partition(".")
        holds(whole.isdigit() and micro.isdigit() and len(micro) == 6, f"{name} is {stats[name]}")


@check("stats settings")
def _(server):
    settings = server.read(b"settings")
    numbers(["maxconns"], settings)
    holds(settings.get("lru_crawler") in ("yes", "no"), "lru_crawler is neither yes nor no")
    if settings["lru_crawler"] == "yes":
        numbers(CRAWLER_SETTINGS, settings)
        holds(settings.get("lru_maintainer_thread") in ("yes", "no"), "lru_maintainer_thread is neither yes nor no")


@check("stats slabs")
def _(server):
    numbers(["total_malloced", "active_slabs"], server.read(b"slabs"))
    for number, stats in server.by_class(b"slabs", "").items():
        numbers(PER_CLASS_SLABS, stats, f"class {number}: ")


@check("stats items")
def _(server):
    for number, stats in server.by_class(b"items", "items:").items():
        there = [name for name in PER_CLASS_ITEMS_OPTIONAL if name in stats]
        numbers(PER_CLASS_ITEMS + there, stats, f"class {number}: ")


if __name__ == "__main__":
    main(Stats)
