"""Commands that overlap take effect one at a time: contended histories over TCP, and over TCP and UDP together,
against the genuine memcached, which must pass too, and against gnomon; there also beside kernels that write whole
replies; with flushes, and items that expire and are evicted meanwhile.

memcached breaks one promise itself: a `gets`, `gats` or `mg` with flag c that overlaps an `incr`, `decr` or `ma` now
and then shows the old value with the CAS id of the new one. So it is not asked for both in one history.

    LINEAR_HISTORIES=500 scripts/e2e.sh linear --file-seconds 0"""

import functools
import os
import re

import pytest
from harness.checks import because
from harness.servers import GENUINE, HERE, TOOLS

HISTORIES = os.environ.get("LINEAR_HISTORIES", "20")
STORING = "get,gets,gat,gats,set,add,replace,append,prepend,cas,delete,touch"
COUNTING = "get,gat,set,add,delete,incr,decr,ma,touch"
FLUSHING = "get,get,gets,gat,gats,set,add,replace,cas,delete,touch,flush-all"

# So few changes of so many keys that items expire before they are stored again.
READING = ",".join(["get"] * 16) + ",gat,touch,set,add,delete"
FEW_CHANGES = ("--keys", "50000", "--operations", "800000", "--expire", "--late", "2", "--verbs")


@pytest.fixture
def judged(check, host):
    """judged(NAME, SERVER, ARGS...): a check: every history is linearizable. With `ended`, items have expired or were
    evicted in it, too."""
    return functools.partial(judge, check, host)


def judge(check, host, name, server, *args, ended=False):
    done = host.run("timeout", "500", f"{TOOLS}/gnomon-linear", "--server", server, *args)
    last = (done.stdout.splitlines() or [""])[-1]
    with check.named(f"{name}: {last}" if done.returncode == 0 else name):
        if done.returncode != 0:
            because(f"exit status {done.returncode}\n{done.stdout}")
    if ended:
        n = int((re.findall(r"(\d+) answers show items that had expired", done.stdout) or ["0"])[0])
        check(f"{n} answers show that items were gone by themselves", n > 20)


def test_memcached(host, memcached, judged):
    memcached(host)
    judged("memcached: storing", GENUINE, "--histories", "1", "--verbs", STORING)
    judged("memcached: counting", GENUINE, "--histories", "1", "--verbs", COUNTING)
    judged("memcached: meta verbs", GENUINE, "--histories", "1", "--verbs", "get,mg,ms,md")
    judged("memcached: flushes", GENUINE, "--histories", "1", "--keys", "50", "--verbs", FLUSHING)
    judged("memcached: expiry", GENUINE, "--histories", "1", *FEW_CHANGES, READING, ended=True)
    judged("memcached: TCP and UDP", GENUINE, "--histories", "1", "--udp-clients", "4", "--verbs", STORING)


def test_gnomon(host, gnomon, judged):
    server = gnomon(host, "-t", "2")
    server.serves("serves with two TCP threads")
    judged("TCP", HERE, "--histories", HISTORIES)
    judged("TCP and UDP on two keys", HERE, "--histories", "3", "--udp-clients", "8", "--keys", "2")
    verbs = f"{FLUSHING},flush-prefix"
    judged("flushes", HERE, "--histories", "2", "--udp-clients", "4", "--keys", "50", "--verbs", verbs)
    verbs = f"{READING},append,incr"
    judged("expiry", HERE, "--histories", "1", "--udp-clients", "8", *FEW_CHANGES, verbs, ended=True)
    server.stop()


def test_evictions(host, gnomon, judged):
    server = gnomon(host, "-t", "2", "-m", "4")
    server.serves("serves with little memory")
    judged("evictions", HERE, "--histories", "1", "--udp-clients", "8", "--keys", "10000", "--evict", ended=True)
    server.stop()


def test_whole_replies(check, host, gnomon, judged):
    """More gets than changes, so that some of the replies that the kernels wrote are right when they come."""
    simt = ("--engine", "simt", "--gpu-replies", "complete", "--index-cycle", "10", "--index-every", "1")
    server = gnomon(host, "-t", "2", *simt)
    server.serves("serves with whole replies")
    clients = ("--clients", "4", "--udp-clients", "12")
    verbs = "get,get,get,gets,gets,mg,mg,mg,set,cas,incr,decr,append,prepend,add,replace,delete,touch,gat,gats,ms,md,ma"
    judged("whole replies", HERE, "--histories", "2", *clients, "--keys", "100", "--verbs", verbs)
    verbs = f"{FLUSHING},get,get,mg,mg,mg,flush-prefix"
    judged("whole replies, flushes", HERE, "--histories", "1", *clients, "--keys", "50", "--verbs", verbs)
    verbs = f"{READING},gets,gets,mg,mg,mg,append,incr"
    judged("whole replies, expiry", HERE, "--histories", "1", *clients, *FEW_CHANGES, verbs, ended=True)
    accepted = int(re.search(r"STAT replies_accepted (\d+)", host.ask(HERE, "stats engine"))[1])
    check(f"the kernels wrote {accepted} of them", accepted > 2000)
    server.stop()
