"""Network namespaces, cables between them, and what runs in them."""

import ctypes
import itertools
import os

import memc
from harness import processes

LIBC = ctypes.CDLL(None, use_errno=True)
numbers = itertools.count()


class Namespace:
    """A namespace with its loopback up. `with` it, this thread's new sockets are in it."""

    def __init__(self, name):
        self.name = f"gnomon-{os.getpid()}-{name}{next(numbers)}"
        must("ip", "netns", "add", self.name)
        self.ip("link set lo up")
        # memcaslap looks names up with AI_ADDRCONFIG, which does not count loopback as an address.
        self.ip("addr add 198.51.100.1/32 dev lo")

    def delete(self):
        """Removes it, and what devices it has."""
        processes.run("ip", "netns", "del", self.name)

    def __enter__(self):
        self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        enter(f"/run/netns/{self.name}")
        return self

    def __exit__(self, *_):
        enter(self.home)

    def argv(self, *argv):
        """A command line that runs in it."""
        return ["ip", "netns", "exec", self.name, *argv]

    def run(self, *argv, **options):
        """A program to its end, and what it said."""
        return processes.run(*self.argv(*argv), **options)

    def ip(self, words):
        """`ip WORDS` there, which must do well."""
        return must("ip", "-n", self.name, *words.split())

    def ip_does(self, words):
        """Whether `ip WORDS` does well."""
        return processes.run("ip", "-n", self.name, *words.split()).returncode == 0

    def must(self, *argv):
        """A program that must do well."""
        return must(*self.argv(*argv))

    def no_ipv6(self, device):
        """The kernel has no IPv6 on the device."""
        self.must("sh", "-c", f"echo 1 >/proc/sys/net/ipv6/conf/{device}/disable_ipv6")

    def deaf(self, device):
        """The kernel sees nothing of what arrives: AF_PACKET taps the frames before the drop."""
        self.must("nft", "add", "table", "netdev", "gnomon")
        hook = f"{{ type filter hook ingress device {device} priority 0; policy drop; }}"
        self.must("nft", "add", "chain", "netdev", "gnomon", "ingress", hook)

    def client_addresses(self, device):
        """The client's side of the test network."""
        self.ip(f"addr add 10.77.0.2/24 dev {device}")
        self.ip(f"addr add fd77::2/64 dev {device} nodad")

    def waits(self, address, seconds=1):
        """Whether a server answers there in time, over UDP."""
        with self:
            return memc.wait(address, seconds)

    def ask(self, address, text, over=memc.Tcp, **options):
        """A request in ASCII, and the reply without its last end of line."""
        with self:
            client = over(address, **options)
        try:
            return client.ask(text.encode() + b"\r\n").decode("latin-1").replace("\r\n", "\n").rstrip("\n")
        finally:
            client.close()


def enter(place):
    """This thread's network namespace is that one, a path or an open file, which is closed."""
    file = place if isinstance(place, int) else os.open(place, os.O_RDONLY)
    try:
        if LIBC.setns(file, 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(file)


def must(*argv):
    """A program that must do well; what it said."""
    done = processes.run(*argv)
    assert done.returncode == 0, f"{' '.join(map(str, argv))}: {done.stdout}"
    return done.stdout


def veth_pair(server, client, queues=2):
    """A cable, wire0 at the server's end, wire1 at the client's. Checksums are made in full, so that they can be
    checked, and the server's kernel sees nothing of what arrives."""
    size = f"numtxqueues {queues} numrxqueues {queues}"
    server.ip(f"link add wire0 {size} type veth peer name wire1 {size} netns {client.name}")
    server.no_ipv6("wire0")
    for place, device in ((server, "wire0"), (client, "wire1")):
        place.must(*f"ethtool -K {device} tx off gro off gso off tso off".split())
    server.deaf("wire0")
    server.ip("link set wire0 up")
    client.ip("link set wire1 up")
