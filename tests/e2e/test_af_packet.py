"""The appliance at one end of a veth cable through DPDK's af_packet, two queues, two workers."""

from harness import wires


def test_af_packet(check, wire, scratch):
    up = wire("af_packet", "--metrics", f"unix:{scratch}/metrics.sock")
    # The driver lets the kernel put IPv4 fragments together before it reads them, and drops what then fits no slot.
    wires.all_checks(check, up, scratch / "wire.pcapng", "--without", wires.TOO_LONG)
    wires.own_capture(check, up, scratch / "metrics.sock", scratch)
    up.gnomon.stop()
