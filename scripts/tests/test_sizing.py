"""The tables of docs/sizing.md are what its formulas make."""

import re
import unittest
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs/sizing.md").read_text()
KEY_BYTES = 16
PAGE_BYTES = 2 << 20
UNIT_BYTES = 64
GROWTH = 1.25


def number(text):
    """`1,234.5 B` as a number."""
    return float(text.replace(",", "").replace(" B", ""))


def rows(pattern):
    """The cells of the rows whose first cell matches, and what it matched."""
    for line in PAGE.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if line.startswith("|") and (match := re.fullmatch(pattern, cells[0])):
            yield match, cells[1:]


def frame_bytes(text_bytes):
    """An IPv4 frame with so much text in it."""
    return max(60, 14 + 20 + 8 + 8 + text_bytes)


def hit_bytes(value):
    """The text of a reply with one value."""
    return len(f"VALUE {'k' * KEY_BYTES} 0 {value}\r\n") + value + len("\r\nEND\r\n")


def chunks():
    """The size classes: (bytes, chunks a page), as dataplane/store/src/sizes.rs makes them."""
    units_in_page = PAGE_BYTES // UNIT_BYTES
    top, wanted, units = (1 << 20) // UNIT_BYTES, 1, 0
    while units < top:
        per_page = units_in_page // wanted
        units = units_in_page // per_page
        yield units * UNIT_BYTES, per_page
        wanted = min(max(int(units * GROWTH), units + 1), top)


class Tables(unittest.TestCase):
    def test_line_rates(self):
        frames = {"request": frame_bytes(len("get \r\n") + KEY_BYTES), "reply, miss": frame_bytes(len("END\r\n"))}
        seen = 0
        for match, (frame, *rates) in rows(r"request|reply, .*"):
            value = re.fullmatch(r"reply, value of ([\d,]+) B", match[0])
            wanted = frame_bytes(hit_bytes(int(number(value[1])))) if value else frames[match[0]]
            self.assertEqual(number(frame), wanted, match[0])
            for gigabits, rate in zip((10, 25, 100), rates, strict=True):
                self.assertEqual(rate, f"{gigabits * 1e9 / (8 * (wanted + 24)) / 1e6:.2f}", match[0])
            seen += 1
        self.assertEqual(seen, 6)

    def test_chunks(self):
        seen = 0
        for match, cells in rows(r"(\d+) \+ ([\d,]+) B"):
            bytes_in_all = 32 + int(match[1]) + int(number(match[2])) + 2
            chunk, per_page = next(c for c in chunks() if c[0] >= bytes_in_all)
            self.assertEqual([number(c) for c in cells], [bytes_in_all, chunk, per_page * (1 << 30) // PAGE_BYTES])
            seen += 1
        self.assertEqual(seen, 9)

    def test_cores(self):
        seen = 0
        for _, (nanoseconds, rate) in rows(r"[GS]ET over (?:UDP|TCP).*"):
            self.assertAlmostEqual(float(rate.removesuffix(" M")), 1e3 / number(nanoseconds), delta=0.055)
            seen += 1
        self.assertEqual(seen, 6)


if __name__ == "__main__":
    unittest.main()
