"""The appliance behind DPDK's net_tap, two queues, two workers: the kernel's end of the TAP device is moved into the
client's namespace and becomes the client's NIC. TCP goes through the exception path."""

from harness import wires


def test_net_tap(check, wire, scratch):
    up = wire("net_tap", "--tcp", "kernel")
    wires.all_checks(check, up, scratch / "wire.pcapng")
    up.gnomon.stop()
