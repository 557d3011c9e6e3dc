"""The systemd generator: what a kernel's command line makes of gnomon.service."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

GENERATOR = Path(__file__).parents[2] / "appliance/systemd/gnomon-generator"


def generate(command_line):
    """The drop-in's lines, and the units that the service wants."""
    with tempfile.TemporaryDirectory() as at:
        given, units = Path(at, "cmdline"), Path(at, "units")
        given.write_text(command_line)
        networks = Path(at, "networks")
        environment = {
            **os.environ,
            "GNOMON_COMMAND_LINE": str(given),
            "GNOMON_NETWORKS": str(networks),
        }
        subprocess.run([GENERATOR, units, units, units], check=True, env=environment)
        dropin = units / "gnomon.service.d/command-line.conf"
        wants = units / "gnomon.service.wants"
        unmanaged = sorted(p.name for p in networks.iterdir()) if networks.exists() else []
        lines = dropin.read_text().splitlines() if dropin.exists() else []
        bound = sorted(p.name for p in wants.iterdir()) if wants.exists() else []
        nics = [name.removeprefix("gnomon-bind@").removesuffix(".service") for name in bound]
        assert unmanaged == [f"10-gnomon-{nic}.network" for nic in nics], unmanaged
        return lines, bound


class Generator(unittest.TestCase):
    def test_others_words_are_left_alone(self):
        self.assertEqual(generate("root=/dev/vda1 quiet gnomon xgnomon.port=a\n"), ([], []))

    def test_flags_are_environment_and_nics_are_bound(self):
        lines, wants = generate(
            "quiet gnomon.port=0000:81:00.0 gnomon.max-item-size=2m gnomon.ip=10.0.0.5/24\n"
        )
        self.assertEqual(
            lines,
            [
                "[Service]",
                "Environment=GNOMON_MAX_ITEM_SIZE=2m",
                "Environment=GNOMON_IP=10.0.0.5/24",
                "Environment=GNOMON_PORT=0000:81:00.0",
            ],
        )
        self.assertEqual(wants, ["gnomon-bind@0000:81:00.0.service"])

    def test_several_ports(self):
        lines, wants = generate("gnomon.port=0000:81:00.0,mprq_en=1 gnomon.port=net_tap0,iface=g0")
        self.assertIn("Environment=GNOMON_PORT=0000:81:00.0,mprq_en=1;net_tap0,iface=g0", lines)
        self.assertEqual(wants, ["gnomon-bind@0000:81:00.0.service"])

    def test_what_no_flag_has_is_left_out(self):
        lines, wants = generate('gnomon.ip=$(id) gnomon.user="a gnomon.listen=* gnomon.memory=64')
        self.assertEqual(lines, ["[Service]", "Environment=GNOMON_MEMORY=64"])
        self.assertEqual(wants, [])


if __name__ == "__main__":
    unittest.main()
