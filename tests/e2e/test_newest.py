"""gnomon beside the newest memcached that can be had: random conversations with the flags that Debian's older one has
not, and statistics. Skipped where its source cannot be had, or is of a release that nobody has read yet."""

import os

import pytest
from harness.namespaces import must
from harness.servers import GENUINE, HERE

pytestmark = pytest.mark.needs("newest_memcached")

READ_UP_TO = "1.6.45"
CONVERSATIONS = os.environ.get("CONVERSATIONS", "10000")


def test_newest(check, host, gnomon, memcached, newest):
    version = must(newest, "--version").split()[1]
    if [int(n) for n in version.split(".")] > [int(n) for n in READ_UP_TO.split(".")]:
        pytest.skip(f"it is {version} now: read what is new after {READ_UP_TO}, then the number in test_newest.py")
    # With one thread it answers datagrams in their order.
    memcached(host, "-m", "512", "-t", "1", program=newest)
    server = gnomon(host, "-m", "512")
    server.serves(f"starts beside memcached {version}")
    check.counted(*host.argv("tests/e2e/stats_parity.py", GENUINE, HERE))
    check.counted(*host.argv("tests/e2e/differential.py", GENUINE, HERE, "--count", CONVERSATIONS))
    server.stop()
