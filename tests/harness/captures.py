"""Captures of a wire by dumpcap, and what Wireshark finds in them."""

import signal

from harness import processes

SUMS = [word for kind in ("ip", "udp", "tcp") for word in ("-o", f"{kind}.check_checksum:TRUE")]

KINDS = {
    "IPv4 replies in one datagram": "ip && udp.srcport == 11211 && udp.payload[4:2] == 00:01",
    "IPv4 replies in several": "ip && udp.srcport == 11211 && udp.payload[4:2] != 00:01",
    "IPv6 replies in one datagram": "ipv6 && udp.srcport == 11211 && udp.payload[4:2] == 00:01",
    "IPv6 replies in several": "ipv6 && udp.srcport == 11211 && udp.payload[4:2] != 00:01",
    "TCP segments": "tcp.srcport == 11211",
}
"""What must be there to be judged."""

# Linux writes 0xffff for a sum of 0 in TCP too, where Wireshark wants 0; both are right.
FAULTS = {
    "malformed packet": "_ws.malformed",
    "bad IPv4 checksum": 'ip.checksum.status == "Bad"',
    "bad UDP checksum": 'udp.checksum.status == "Bad" or (ipv6 and udp.checksum == 0)',
    "bad TCP checksum": 'tcp.checksum.status == "Bad" and tcp.checksum != 0xffff',
    "bad ICMP checksum": 'icmp.checksum.status == "Bad" or icmpv6.checksum.status == "Bad"',
    "packet flagged as an error": '_ws.expert.severity == "Error"',
}
"""What no reply may have."""


class Capture(processes.Process):
    """What a device sends and receives, until it is stopped. `started` says whether it has begun."""

    def __init__(self, place, device, file, *args):
        self.file = file
        log = file.with_suffix(".dumpcap")
        super().__init__(*place.argv("dumpcap", "-q", "-B", "64", "-i", device, "-w", file, *args), log=log)
        self.started = processes.wait_for(10, lambda: self.gone() or "File:" in self.said()) and not self.gone()

    def stop(self):
        """What it has not read yet is lost."""
        self.send_signal(signal.SIGINT)
        self.ends(30)


def tshark(file, *args):
    """tshark's lines about a file."""
    return processes.run("sh", "-c", 'exec tshark "$@" 2>/dev/null', "sh", "-r", file, *args).stdout.splitlines()


def fields(file, which, *names, options=()):
    """The fields of the packets that a filter is for; each packet a line."""
    return tshark(file, *options, "-Y", which, "-T", "fields", *(word for name in names for word in ("-e", name)))


def wireshark(file, which, options=SUMS):
    """How many captured packets match. Checksums are verified."""
    return len(fields(file, which, "frame.number", options=options))


def each(file, *which):
    """The same of several filters, in one pass, which takes as long as one."""
    table = tshark(file, "-q", *SUMS, "-z", ",".join(["io,stat,0", *which]))
    row = next(line for line in table if "<>" in line)
    # Frames and bytes, for each of them.
    return [int(cell) for cell in row.split("|")[2:] if cell.strip()][::2]


def is_clean(check, file, v4, v6):
    """Checks: no reply in the capture is malformed, carries a bad checksum, or was flagged as an error; and replies of
    every kind are there to be judged."""
    ours = f"(ip.src == {v4} || ipv6.src == {v6})"
    for name, n in zip(KINDS, each(file, *(f"{ours} && {which}" for which in KINDS.values())), strict=True):
        check(f"captured: {name} ({n})", n > 0, "there is none")
    any_fault = wireshark(file, f"{ours} && ({' or '.join(f'({which})' for which in FAULTS.values())})")
    for name, which in FAULTS.items():
        seen = tshark(file, *SUMS, "-Y", f"{ours} && ({which})", "-V", "-c", "2000")[:80] if any_fault else []
        check(f"captured: no {name}", not seen, "\n".join(["", *seen]))
    # The judge must be able to find fault: the same capture, one byte in a hundred changed.
    damaged = file.with_suffix(".damaged")
    processes.run("editcap", "-E", "0.01", "--seed", "1", file, damaged)
    n = wireshark(damaged, f'{ours} && udp.checksum.status == "Bad"')
    check(f"planted errors in the same capture are found ({n})", n > 0)
