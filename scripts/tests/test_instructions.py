"""Callgrind's profiles are added up as they should be, and too many instructions are noticed."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import instructions  # noqa: E402

PROFILE = """\
# callgrind format
positions: line
events: Ir

ob=(1) /somewhere/gnomon-study
fl=(1) worker.rs
fn=(1) dataplane::worker::Worker::turn
10 100
+2 7
fi=(2) checksum.rs
* 3
cob=(2) /usr/lib/libc.so.6
cfn=(2) memcpy
calls=4 0
11 5000
12 1
cfn=(3) <driver_shim::ports::memory::LoopingRx as driver_shim::port::RxQueue>::burst
calls=1 0
13 900

ob=(2)
fl=(3) memcpy.S
fn=(2)
1 5000

ob=(1)
fl=(4) memory.rs
fn=(3)
5 900

fn=(1)
14 9
"""


class Counts(unittest.TestCase):
    def test_only_what_the_data_plane_does_itself_counts(self):
        costs = instructions.instructions(PROFILE.splitlines())
        self.assertEqual(costs["/usr/lib/libc.so.6", "memcpy"], 5000)
        self.assertEqual(sum(costs.values()), 100 + 7 + 3 + 1 + 5000 + 900 + 9)
        self.assertEqual(instructions.counted(costs), 100 + 7 + 3 + 1 + 9)

    def test_three_percent_more_are_too_many(self):
        for count, fits in ((1000, True), (1030, True), (1031, False), (1500, False), (900, True)):
            self.assertEqual(instructions.compare(1000, count)[0], fits, count)
        self.assertIn("--update", instructions.compare(1000, 900)[1])
        self.assertNotIn("--update", instructions.compare(1000, 980)[1])


if __name__ == "__main__":
    unittest.main()
