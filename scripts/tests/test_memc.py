"""The checking client accepts what protocol.txt says and refuses each thing that it forbids."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/e2e"))
import memc  # noqa: E402


def datagram(request_id=7, seq=0, total=1, reserved=0, payload=b"x"):
    return memc.HEADER.pack(request_id, seq, total, reserved) + payload


FULL = b"f" * memc.DATAGRAM_PAYLOAD_MAX


class Reassembles(unittest.TestCase):
    def test_one_datagram(self):
        r = memc.Reassembly(7)
        self.assertTrue(r.add(datagram(payload=b"END\r\n")))
        self.assertEqual(r.payload(), b"END\r\n")

    def test_several_in_any_order(self):
        r = memc.Reassembly(7)
        self.assertFalse(r.add(datagram(seq=2, total=3, payload=b"z")))
        self.assertFalse(r.add(datagram(seq=0, total=3, payload=FULL)))
        self.assertTrue(r.add(datagram(seq=1, total=3, payload=FULL)))
        self.assertEqual(r.payload(), FULL + FULL + b"z")

    def test_refuses_what_is_wrong(self):
        bad = {
            "short": b"1234567",
            "id": datagram(request_id=8),
            "reserved": datagram(reserved=1),
            "beyond": datagram(seq=1, total=1),
            "total 0": datagram(total=0),
            "oversized": datagram(payload=FULL + b"x"),
            "middle not full": datagram(total=2, payload=b"x"),
        }
        for name, data in bad.items():
            with self.subTest(name), self.assertRaises(memc.Wrong):
                memc.Reassembly(7).add(data)

    def test_refuses_twice_and_changing_totals(self):
        for second in (datagram(total=2, payload=FULL), datagram(seq=1, total=3, payload=FULL)):
            r = memc.Reassembly(7)
            r.add(datagram(total=2, payload=FULL))
            with self.assertRaises(memc.Wrong):
                r.add(second)


class Replies(unittest.TestCase):
    def test_knows_the_end_of_a_reply(self):
        self.assertTrue(memc.is_complete(b"get a", b"END\r\n"))
        self.assertFalse(memc.is_complete(b"get a", b"VALUE a 0 3\r\nabc\r\n"))
        self.assertFalse(memc.is_complete(b"get a", b"VALUE a 0 3\r\nabc\r\nEN"))
        self.assertTrue(memc.is_complete(b"get a", b"CLIENT_ERROR bad command line format\r\n"))
        self.assertTrue(memc.is_complete(b"set a 0 0 1\r\nx", b"STORED\r\n"))
        self.assertFalse(memc.is_complete(b"set a 0 0 1\r\nx", b"STORED\r"))


if __name__ == "__main__":
    unittest.main()
