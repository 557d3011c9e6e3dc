"""Real clients against a server whose requests go through the GPU's kernels, run on the CPU: every way of getting
batches there, both indexes, and whole replies."""

import re
import time

import memc
import pytest
from harness.servers import HERE

SIMT = ("-m", "128", "--engine", "simt", "--gpu-verify-ratio", "8")


@pytest.fixture
def load(slap, host):
    """load(WHO, NAME, ARGS...): memcaslap, every value verified, nothing lost."""
    size = ("-s", HERE, "-T", "1", "-c", "8", "-x", "3000")
    return lambda who, name, *args: slap(f"{who}, memcaslap {name}", host, *size, *args)


def facts(host, about="stats engine"):
    """What `stats` says."""
    said = dict(re.findall(r"^STAT (\S+) (.*)$", host.ask(HERE, about), re.MULTILINE))
    return {name: int(value) if value.isdigit() else value for name, value in said.items()}


@pytest.mark.parametrize("mode, index", [("launch", "setassoc"), ("graph", "cuckoo"), ("persistent", "setassoc")])
def test_index(check, host, gnomon, load, mode, index):
    who = f"{mode}, {index}"
    server = gnomon(host, *SIMT, "--gpu-mode", mode, "--gpu-index", index)
    server.serves(f"{who}: gnomon starts")
    load(who, "-U: UDP", "-U")
    load(who, "-U -d 10: multi-get over UDP", "-U", "-d", "10")
    load(who, "-a -d 10: set by TCP, multi-get by UDP", "-a", "-d", "10")
    load(who, "-B: binary", "-B")
    # What was stored is found as a plain get asks for it, at once and from the index. (memcaslap puts a blank behind
    # each key, which is the strict parser's business.)
    host.ask(HERE, "set key 3 0 5\r\nvalue")
    got = [host.ask(HERE, "get key", over=memc.Udp) for _ in range(20)]
    check(f"{who}: plain gets", all(reply.startswith("VALUE key 3 5") for reply in got), got)
    # Hints of the device's own were right, nothing but writes went by the CPU, and nothing was lost.
    told = facts(host)
    used = told["hints_right"] > told["gpu_missed"] and told["gpu_requests"] > 1000
    used = used and told["cpu_requests"] <= facts(host, "stats")["cmd_set"]
    check(f"{who}: the kernels did it", used and told["gpu_lost"] == 0 and told["gpu_state"] == "used", told)
    server.stop()


@pytest.mark.parametrize("mode", ["launch", "graph", "persistent"])
def test_whole_replies(check, host, gnomon, load, mode):
    who = f"{mode}, whole replies"
    server = gnomon(host, *SIMT, "--gpu-mode", mode, "--gpu-replies", "complete")
    server.serves(f"{who}: gnomon starts")
    load(who, "-a -d 10: set by TCP, multi-get by UDP", "-a", "-d", "10")
    host.ask(HERE, "set key 3 0 5\r\nvalue")
    host.ask(HERE, "set other 0 0 1\r\nx")

    def asks(name, request, reply):
        """The same reply each time, by the CPU, which asks for it, and then by the kernels, but for one in 32. They
        see what was stored some milliseconds later."""
        got = []
        for _ in range(12):
            time.sleep(0.05)
            got.append(host.ask(HERE, request, over=memc.Udp))
        check(f"{who}: {name}", all(one == reply for one in got), got)

    asks("get", "get key", "VALUE key 3 5\nvalue\nEND")
    asks("get of two", "get key other", "VALUE key 3 5\nvalue\nVALUE other 0 1\nx\nEND")
    asks("mg", "mg key v f", "VA 5 f3\nvalue")
    asks("mg without a value", "mg other k s t", "HD kother s1 t-1")
    # The kernels wrote nearly all of what was asked for, and nothing was lost.
    told = facts(host)
    wrote = told["replies_accepted"] > 34 and told["gpu_lost"] == 0 and told["gpu_state"] == "used"
    check(f"{who}: the kernels wrote them", wrote, told)
    server.stop()
