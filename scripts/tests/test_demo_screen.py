"""The demo's screen calls bad news by its name."""

import copy
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import demo_screen  # noqa: E402

RUN = {"sent": 10, "answered": 9, "lost": 1, "wrong": 0, "bad_datagrams": 0}
REPORT = {"balanced": True, "failed": []}


class Faults(unittest.TestCase):
    def test_good_news_is_no_fault(self):
        self.assertEqual(demo_screen.faults({"a": RUN, "b": RUN}, REPORT), [])

    def test_each_fault_is_found(self):
        bad = [
            ({"wrong": 1, "answered": 8}, {}),
            ({"bad_datagrams": 1}, {}),
            ({"answered": 8}, {}),
            ({"sent": 1, "answered": 0}, {}),
            ({}, {"balanced": False}),
            ({}, {"failed": ["worker 0"]}),
        ]
        for run, report in bad:
            with self.subTest(run=run, report=report):
                runs = {"a": RUN, "b": {**copy.copy(RUN), **run}}
                self.assertEqual(len(demo_screen.faults(runs, {**REPORT, **report})), 1)


if __name__ == "__main__":
    unittest.main()
