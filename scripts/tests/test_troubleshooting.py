"""docs/troubleshooting.md quotes messages that the program really has."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PIECE_MIN = 4
"""Shorter pieces between two `…` are found anywhere and show nothing."""
NOT_OURS = ("(the loader's)", "(DPDK's)")


def quoted(page):
    """The pieces of each message in the first column, and its row."""
    for row in page.splitlines():
        if not row.startswith("| `") or any(mark in row for mark in NOT_OURS):
            continue
        first = row.split(" | ")[0]
        for message in re.findall(r"`([^`]+)`", first):
            if message != "gnomon check":
                yield row, [p.strip(" ;:") for p in message.split("…") if len(p.strip(" ;:")) >= PIECE_MIN]


def sources():
    """All that the program's sources say, strings that go over several lines joined."""
    crates = ("appliance", "dataplane", "driver-shim", "gpu")
    files = [f for crate in crates for f in sorted((ROOT / crate).glob("**/src/**/*.*")) if f.suffix in (".rs", ".c")]
    text = "\n".join(f.read_text() for f in files)
    # What is filled in stands for anything in the page.
    return re.sub(r"\\\n\s*", "", text)


def missing(page, text):
    """Messages of the page that the sources do not have."""
    return [row for row, pieces in quoted(page) if not pieces or not all(p in text for p in pieces)]


class Troubleshooting(unittest.TestCase):
    def test_messages_stand_in_the_sources(self):
        page = (ROOT / "docs/troubleshooting.md").read_text()
        self.assertGreater(len(list(quoted(page))), 40)
        self.assertEqual(missing(page, sources()), [])

    def test_a_message_that_is_not_there_is_noticed(self):
        row = "| `--port …: has no such message` | because | do |"
        self.assertEqual(missing(row, sources()), [row])


if __name__ == "__main__":
    unittest.main()
