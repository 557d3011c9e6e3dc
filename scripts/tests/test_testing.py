"""The tests that docs/testing.md names are there."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def named(page):
    """Files and names of functions, of the table of findings: `file`: `name`, `name`; `file`: …"""
    table = page.split("| finding | tests |")[1].split("\n\n")[0]
    for path, names in re.findall(r"`([\w/.]+\.(?:rs|py))`: ((?:`\w+`(?:, )?)+)", table):
        for name in re.findall(r"`(\w+)`", names):
            yield path, name


class Testing(unittest.TestCase):
    def test_each_finding_has_its_tests(self):
        page = (ROOT / "docs/testing.md").read_text()
        found = list(named(page))
        self.assertGreater(len(found), 40)
        for path, name in found:
            with self.subTest(path=path, name=name):
                self.assertRegex((ROOT / path).read_text(), rf"\b(fn|def) {name}\(")


if __name__ == "__main__":
    unittest.main()
