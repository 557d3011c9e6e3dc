"""memcaslap: load, every value of which is verified."""

import re

from harness.checks import because

BAD = ("verify_failed", "verify_misses", "packet_disorder", "packet_drop", "udp_timeout")
"""What must be 0."""

LOST = ("verify_misses", "packet_drop", "udp_timeout")
"""Of these, what lost datagrams are."""


def slap(check, name, place, *args, lost="strict"):
    """A check: it runs, and no value is wrong. Lost datagrams count (strict) or are only reported (counted).

    memcaslap gives a request up after its own patience and aborts (ms_sort_udp_packet) when the answer comes after
    all, as on a machine busy with other things. A server that answers wrongly makes it abort at every try, a late one
    does not: it gets three."""
    for number in (1, 2, 3):
        done = place.run("timeout", "120", "memcaslap", "-v", "1.0", *args)
        if done.returncode == 0 or "ms_sort_udp_packet" not in done.stdout:
            break
        check.note(f"{name}: try {number} aborted on a late answer")
    told = {key: int(value) for key, value in re.findall(r"^(\w+): (\d+)", done.stdout, re.MULTILINE)}
    bad = [key for key in BAD if told.get(key, 0) and not (lost == "counted" and key in LOST)]
    speed = (re.findall(r"TPS: \d+", done.stdout) or [""])[0]
    with check.named(f"{name} ({speed}, drops {told.get('packet_drop', '')})"):
        if done.returncode != 0:
            because(f"memcaslap failed\n{done.stdout}")
        if bad or told.get("cmd_get", 0) == 0:
            because(f"{bad}\n{done.stdout}")
