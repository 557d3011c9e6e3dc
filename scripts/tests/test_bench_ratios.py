"""Medians and ratios are what they should be, with a previous commit and without."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bench_ratios  # noqa: E402

NAMES = ["get", "get, hw", "get, 1", "look-ups", "look-ups, 1", "set", "get, hints", "get, whole replies"]


def figures(commit, ns, line_ns=10):
    rows = [{"short": n, "cpu_ns": ns, "per_s": 1e9 / ns, "of_lines": line_ns / ns} for n in NAMES]
    rows[2] |= {"cpu_ns": 3 * ns}
    return {"commit": commit, "path": rows, "path_ns": ns}


class Ratios(unittest.TestCase):
    def test_medians_are_compared(self):
        this = [figures("new", ns) for ns in (100, 80, 125)]
        this[0]["memcached"] = {"cpu_ns": 8000}
        lines = bench_ratios.table(this, [figures("old", 200)])
        # 10 ns a line, 100 ns a request: 10 %, twice the 5 % before.
        self.assertIn("new", lines[0])
        self.assertRegex(lines[1], r"% of random lines +8 +13 +17 +5\.00 +10\.00 +2\.00 \(8\.00 to 12\.50\)")
        self.assertRegex(lines[4], r"M/s +8 +14 +18 +5\.00 +10\.00 +2\.00")
        self.assertRegex(lines[11], r"GET +2 +3 +4 +3\.00 +3\.00 +1\.00")
        self.assertIn("1/80", lines[-1])

    def test_without_a_previous_commit_there_is_no_ratio(self):
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory, "this-0")
            place.mkdir()
            (place / "offline.json").write_text(json.dumps(figures("new", 100)))
            self.assertEqual(bench_ratios.main(directory), 0)
            lines = bench_ratios.table(bench_ratios.rounds(Path(directory), "this"), [])
        self.assertRegex(lines[1], r" - +10\.00  - ")

    def test_what_the_previous_commit_did_not_measure_has_no_ratio(self):
        before = figures("old", 200)
        before["path"].pop()
        lines = bench_ratios.table([figures("new", 100)], [before])
        self.assertRegex(lines[8], r"whole replies.* +25 +30 +40 +- +10\.00 +- ")
        self.assertRegex(lines[9], r"SET, M/s .*2\.00")

    def test_no_figures_are_no_result(self):
        with tempfile.TemporaryDirectory() as directory:
            self.assertEqual(bench_ratios.main(directory), 1)


if __name__ == "__main__":
    unittest.main()
