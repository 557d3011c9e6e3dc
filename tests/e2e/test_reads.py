"""One-sided reads by a requester in user space, without a guest: the Rust client and gnomon-replay --rdma, through the
kernel's UDP sockets over DPDK's net_tap, and through a DPDK port beside the kernel's (net_af_packet)."""

import json
import os
import re

import pytest
from harness.clients import rust_client
from harness.servers import TOOLS
from harness.wires import AT, V4

REPLAY = os.environ.get("REPLAY", f"{TOOLS}/gnomon-replay")
PLAYED = "--rdma --fill --workload ycsb-b --keys 1000 --key-size 24 --value-size 1000 --requests 20000 --seed 7".split()


@pytest.mark.needs("verbs")
def test_gid(check, scratch):
    made = ("cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", scratch / "gid", "tests/e2e/rdma/gid_test.c", "-libverbs")
    check.runs("the shim's test is made", *made)
    check.runs("the GID of RoCE v2 is taken, on its port", scratch / "gid")


@pytest.mark.parametrize("tcp", ["kernel", "worker"])
def test_reads(check, wire, scratch, tcp):
    client = rust_client(check, scratch)
    up = wire("net_tap", "--rdma", "--tcp", tcp, "--exception-rate", "100000", "-m", "256")
    check.counted(*up.client.argv(client, AT, "sockets"))

    def plays(name, *args):
        """1,000 keys are set over TCP, then read, among sets of one in ten."""
        file = scratch / "played.json"
        limits = ("--expect-hits", "--max-lost", "0", "--outstanding", "32", "--json", file, *args)
        play = up.client.argv("timeout", "120", REPLAY, "--target", AT, *PLAYED, *limits)
        check.runs(f"gnomon-replay --rdma, {name}", *play)
        with check.named(f"by READs, every value right, {name}"):
            read_well(json.loads(file.read_text()))

    plays(f"through sockets, TCP by the {tcp}")
    if tcp == "worker":
        mac = re.search(r"lladdr (\S+)", up.client.ip(f"neigh show {V4}"))[1]
        plays("through a port", "--rdma-port", f"net_af_packet0,iface={up.device}", "--dst-mac", mac)
    up.gnomon.stop()


def read_well(report):
    """READs answered the gets, and nothing was wrong or lost. Some may be torn by the sets among them."""
    reads = report["reads"]
    assert report["wrong"] == 0 and report["lost"] == 0 and report["skipped"] == 0, report
    assert report["answered"] == report["sent"] == 20000 and report["misses"] == 0, report
    assert reads["bad"] == 0 and reads["torn"] < 100, reads
    assert reads["reopened"] == 0 and reads["asked"] <= 1000 + reads["torn"], reads
    assert reads["reads"] >= report["gets"] - reads["asked"] > 10000, reads
