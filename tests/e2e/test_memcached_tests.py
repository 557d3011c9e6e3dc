"""The newest memcached's own tests (t/*.t), which start gnomon in its place with the options that they want. Each file
passes whole, or but for the tests named here, with the reason. Skipped where memcached's source cannot be had.

    scripts/e2e.sh memcached_tests --only FILE      without .t; default: all"""

import concurrent.futures
import pathlib
import re

import pytest
from harness.checks import because
from harness.servers import GNOMON

pytestmark = pytest.mark.needs("newest_memcached")

NOT_RUN = {
    "64bit": "allocates more than there is, by a switch of memcached's debug build",
    "conn-limits": "limits of memcached's own buffers; --conn-memory is tested by tests/hostile",
    "dyn-maxbytes": "cache_memlimit does not go beyond -m",
    "expirations": "moves the clock, by a command of memcached's debug build",
    "lru": "counts on memcached's sizes of pages and its order of eviction",
    "lru-crawler": "metadump begins with OK there; memcached-tool takes that for an item",
    "lru-maintainer": "there is one queue, not hot, warm and cold",
    "restart": "there is no second file, and items come back in another form",
    "slabs-cas": "moves the pages of classes by memcached's numbers",
    "slabs-mover": "asks memcached's page mover how far it is",
    "slabs_reassign": "moves the pages of classes by memcached's numbers",
    "slabs-reassign2": "counts pages as memcached moves them",
    "slabs-reassign-chunked": "items are not made of several chunks",
}

DIFFERS = {
    "issue_42": ("11", "sums up memcached's sizes of classes"),
    "issue_67": ("2,4,8,12", "UDP is off there unless -U is given"),
    "metaget": ("1", "a line without its words is ERROR, as with 1.6.18"),
    "shutdown": ("1", "the refusal's words are 1.6.18's"),
    "stats": ("1", "there are more rows"),
    "udp": ("40,54", "a request of more than 1,400 bytes over UDP is refused"),
}
"""Numbers of the tests that fail, and why."""

# What was built in, the tests find out from the help text.
INSTEAD = f"""#!/bin/sh
case "$*" in
  -h) echo 'unix-socket enable-ssl' ;;
  *) exec "{pathlib.Path(GNOMON).resolve()}" "$@" ;;
esac
"""


def test_memcached_tests(check, host, scratch, newest, pytestconfig):
    source = newest.parent
    for name in ("t", "timedrun"):
        (scratch / name).symlink_to(source.resolve() / name)
    (scratch / "memcached-debug").write_text(INSTEAD)
    (scratch / "memcached-debug").chmod(0o755)

    def run(name):
        """One file of tests to its end."""
        env = {"SSL_TEST": "1"} if name.startswith("ssl_") else {}
        perl = ("timeout", "--kill-after=5", "100", "perl", "-It/lib", f"t/{name}.t")
        return name, host.run(*perl, cwd=scratch, env=env)

    names = pytestconfig.getoption("only") or sorted(path.stem for path in (source / "t").glob("*.t"))
    for name in names:
        if name in NOT_RUN:
            check.note(f"differs: memcached's t/{name}.t: {NOT_RUN[name]}")
    with concurrent.futures.ThreadPoolExecutor(4) as four:
        for name, done in four.map(run, [name for name in names if name not in NOT_RUN]):
            judge(check, name, done)


def judge(check, name, done):
    """Whether what failed is what differs."""
    said = done.stdout
    if re.search("^1[.][.]0 # SKIP", said, re.MULTILINE):
        return
    numbers, why = DIFFERS.get(name, ("", ""))
    failures = ",".join(re.findall(r"^not ok (\d+)", said, re.MULTILINE))
    planned = "".join(re.findall(r"^1\.\.(\d+)", said, re.MULTILINE))
    ended = len(re.findall("^(?:not )?ok ", said, re.MULTILINE))
    good = failures == numbers and planned == str(ended)
    differs = f"; differs in number {numbers}: {why}" if why else ""
    with check.named(f"memcached's t/{name}.t: {planned} tests{differs}" if good else f"memcached's t/{name}.t"):
        if not good:
            status = f"{ended} of {planned or '?'} ran; failed: {failures or 'none'}; status {done.returncode}"
            at = said.find("not ok")
            because("\n".join([status, *said[max(at, 0) :].splitlines()[:30]]))
