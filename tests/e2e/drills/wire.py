"""Drills on wires: a veth cable under `af_packet`, a TAP device under `net_tap`, and the exception path's.

The client's namespace is the one that this runs in; the server's is named. The cable's ends are
`wire0` and `wire1`."""

import contextlib
import pathlib
import random
import socket
import subprocess
import time

import drill
from drill import Probe, Server, drill as mark, held_up, in_time, memc, must, probing, until

V4 = "10.77.0.1"
V6 = "fd77::1"
CLIENT = "10.77.0.2"
ADDRESS = f"{V4}:11211"
DOOR = "gdoor0"
ETH_P_ALL = 3
LINK_S = 1.0
"""Longest time from a link's return to replies."""

_NAMESPACES = {}


def between(server, client):
    """Names the two namespaces."""
    _NAMESPACES.update(server=server, client=client)


def ip(where, *arguments, batch=None):
    """`ip` in a namespace, and what it says."""
    command = ["ip", "-n", _NAMESPACES[where], *arguments]
    done = subprocess.run(command, input=batch, capture_output=True, text=True, check=False)
    must(done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


BEHIND_IT = ("--tcp", "kernel")
"""The service's TCP goes through the exception path."""


def on_cable(*flags):
    """A server behind the cable, with an exception path."""
    return Server(
        *("--port", "net_af_packet0,iface=wire0", "--ip", f"{V4}/24", "--side-door", f"tap={DOOR}"),
        *("-m", "64", "--huge", "off", "--cores", drill.one_core(), *flags),
        ns=_NAMESPACES["server"],
        address=ADDRESS,
    )


def reached(server):
    """Ready and reached over the wire, with every key set over TCP."""
    try:
        server.ready()
        until("the wire carries", lambda: memc.wait(ADDRESS, 1))
        drill.load(ADDRESS)
    except BaseException:
        server.kill()
        raise
    return server


def tcp_again():
    """Seconds until TCP works, through the exception path."""

    def works():
        with contextlib.suppress(OSError, memc.NoReply):
            client = memc.Tcp(ADDRESS, timeout_s=1.0)
            told = client.ask(b"get drill:7\r\n")
            client.close()
            must(told == memc.hit(drill.key(7), drill.value(7)), f"{told[:60]!r}")
            return True
        return False

    return until("TCP through the exception path", works)


# --- links --------------------------------------------------------------------------------------------


@mark("link down for two seconds", "the client's end of the cable goes down", "replies within a second of its return")
def link_down():
    with reached(on_cable()) as server:
        probe = Probe(ADDRESS)

        def once():
            ip("client", "link", "set", "wire1", "down")
            time.sleep(2)
            ip("client", "link", "set", "wire1", "up")
            return probe.recovers()

        took = in_time("replies", LINK_S, once)
        drill.ask_all(ADDRESS)
        must(server.process.poll() is None, "it ended")
        return f"replies again after {took * 1e3:.0f} ms"


@mark("link down for a moment", "down and up at once, 50 times", "replies within a second after each")
def link_moments():
    with reached(on_cable()) as server:

        def once():
            probe = Probe(ADDRESS)
            ip("client", "-batch", "-", batch="link set wire1 down\nlink set wire1 up\n")
            took = probe.recovers()
            probe.close()
            return took

        longest = max(in_time("replies", LINK_S, once) for _ in range(50))
        must(server.said().count("link ") < 60, "too many lines in the log")
        return f"replies again after {longest * 1e3:.0f} ms at most"


@mark("link flaps a thousand times", "down and up as fast as the kernel does it", "replies within a second; few lines in the log")
def link_flaps():
    with reached(on_cable()) as server, probing(ADDRESS):
        begun = time.monotonic()

        def once():
            for _ in range(10):
                ip("client", "-batch", "-", batch="link set wire1 down\nlink set wire1 up\n" * 100)
            return Probe(ADDRESS).recovers()

        took = in_time("replies", LINK_S, once)
        flapped = time.monotonic() - begun
        lines = server.said().count("link ")
        must(lines <= 3 + 2 * flapped, f"{lines} lines in the log in {flapped:.0f} s")
        return f"in {flapped:.1f} s; replies again after {took * 1e3:.0f} ms"


@mark("the server's device goes down", "`ip link set wire0 down`, and up after two seconds", "replies within a second of its return")
def own_device_down():
    with reached(on_cable()) as server:
        def once():
            ip("server", "link", "set", "wire0", "down")
            # Linux takes note of links once a second, and sends nothing over one before it has.
            time.sleep(2)
            ip("server", "link", "set", "wire0", "up")
            return Probe(ADDRESS).recovers()

        took = in_time("replies", LINK_S, once)
        must(server.process.poll() is None, "it ended")
        return f"replies again after {took * 1e3:.0f} ms"


@mark(
    "addresses announced",
    "a start; then `ip link set wire0 down`, and up after two seconds",
    "the client's end hears of each address, and again within seconds",
)
def addresses_announced():
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    wire.bind(("wire1", 0))
    wire.settimeout(0.1)
    wanted = announcements()
    with on_cable("--ip", f"{V6}/64") as server:
        took = hears(wire, wanted)
        ip("server", "link", "set", "wire0", "down")
        time.sleep(2)
        with contextlib.suppress(TimeoutError):
            while True:
                wire.recv(2048)
        ip("server", "link", "set", "wire0", "up")
        took = max(took, hears(wire, wanted))
        # A round that was kept by a device that is down leaves with the next, or not at all.
        sent = server.figure("gnomon_worker_announcements_sent_total")
        must(len(wanted) * 4 <= sent <= len(wanted) * 6, f"{sent} are counted")
        must(server.figure("gnomon_worker_announcements_lost_total") == 0, "counted as lost")
    wire.close()
    return f"two rounds within {took * 1e3:.0f} ms"


def hears(wire, wanted):
    """Seconds until the wire has carried each of these frames twice."""
    left = wanted * 2

    def heard():
        with contextlib.suppress(TimeoutError, ValueError):
            left.remove(wire.recv(2048))
        return not left

    return until("announcements", heard, pause=0)


def announcements():
    """What the server's address is announced with: RFC 5227, section 3, and RFC 4861, section 7.2.6."""
    station = bytes.fromhex(ip("server", "-brief", "link", "show", "wire0").split()[2].replace(":", ""))
    v4, v6 = socket.inet_aton(V4), socket.inet_pton(socket.AF_INET6, V6)
    arp = b"\0\1\x08\0\6\4\0\1" + station + v4 + bytes(6) + v4
    nodes = socket.inet_pton(socket.AF_INET6, "ff02::1")
    advert = b"\x88\0\0\0\x20\0\0\0" + v6 + b"\2\1" + station
    total = checksum(v6 + nodes + b"\0\0\0\x20\0\0\0\x3a" + advert).to_bytes(2, "big")
    packet = b"\x60\0\0\0\0\x20\x3a\xff" + v6 + nodes + advert[:2] + total + advert[4:]
    return [b"\xff" * 6 + station + b"\x08\x06" + arp, b"\x33\x33\0\0\0\1" + station + b"\x86\xdd" + packet]


@mark("net_tap's kernel end goes down", "its device goes down in the client's namespace, and up", "replies within a second of its return")
def tap_port_down():
    with tap_port() as server:
        probe = Probe(ADDRESS)

        def once():
            ip("client", "link", "set", "gtap0", "down")
            must(not probe.ask(0.5), "replies over a device that is down")
            ip("client", "link", "set", "gtap0", "up")
            return probe.recovers()

        took = in_time("replies", LINK_S, once)
        drill.ask_all(ADDRESS)
        must(server.process.poll() is None, "it ended")
        return f"replies again after {took * 1e3:.0f} ms"


@mark("link state", "net_tap's kernel end goes down and up, five times", "metrics say so within a second, and the log")
def link_state():
    flags = ("--port", "net_tap0,iface=gtap0", "--ip", f"{V4}/24", "--cores", drill.one_core(), "-m", "64", "--huge", "off")
    with Server(*flags, ns=_NAMESPACES["server"], address=ADDRESS) as server:
        server.ready()
        longest = 0

        def once():
            slower = 0
            for state, number in (("down", 0), ("up", 1)):
                ip("server", "link", "set", "gtap0", state)
                slower = max(slower, until(f"link {state}", lambda: server.figure("gnomon_port_link_up") == number))
            return slower

        for _ in range(5):
            longest = max(longest, in_time("the link's state", LINK_S, once))
        must(server.figure("gnomon_port_link_changes_total") >= 10, "not counted")
        until("the log", lambda: "link down" in server.said() and "link up" in server.said())
        return f"seen after {longest * 1e3:.0f} ms at most"


@mark("net_tap's kernel end removed", "`ip link del` under the port", "no crash, no busy log; it ends in good order")
def tap_port_removed():
    with tap_port() as server:
        ip("client", "link", "del", "gtap0")
        time.sleep(2)
        must(server.process.poll() is None, "it ended")
        must(len(server.figures()) > 100, "no metrics")
        must(len(server.said().splitlines()) < 200, "the log is flooded")
        return "alive"


@contextlib.contextmanager
def tap_port():
    """A server behind net_tap, whose kernel end is the client's, in the place of the cable."""
    ip("client", "addr", "del", f"{CLIENT}/24", "dev", "wire1")
    flags = ("--port", "net_tap0,iface=gtap0", "--ip", f"{V4}/24", "--cores", drill.one_core(), "-m", "64", "--huge", "off")
    try:
        with Server(*flags, ns=_NAMESPACES["server"], address=ADDRESS) as server:
            server.ready()
            ip("server", "link", "set", "gtap0", "netns", _NAMESPACES["client"])
            ip("client", "link", "set", "gtap0", "address", "02:00:00:00:77:02", "up")
            ip("client", "addr", "add", f"{CLIENT}/24", "dev", "gtap0")
            reached(server)
            yield server
    finally:
        ip("client", "addr", "add", f"{CLIENT}/24", "dev", "wire1")


# --- the exception path ----------------------------------------------------------------------------------------


@mark("exception path removed", "`ip link del` of its TAP device", "UDP is answered all the while; it is made anew, TCP works again")
def side_door_removed():
    with reached(on_cable(*BEHIND_IT)) as server, probing(ADDRESS) as probe:
        right = probe.right
        ip("server", "link", "del", DOOR)
        took = tcp_again()
        must(probe.right > right, "no replies over UDP")
        until("it is counted", lambda: server.figure("gnomon_side_door_reopened_total") == 1)
        until("it is up", lambda: server.figure("gnomon_side_door_up") == 1)
        drill.ask_all(ADDRESS)
        return f"TCP again after {took * 1e3:.0f} ms"


@mark("exception path kept away", "its TAP device is removed and its name taken", "UDP goes on; when the name is free, TCP works again")
def side_door_kept_away():
    with reached(on_cable(*BEHIND_IT)) as server, probing(ADDRESS) as probe:
        # Its thread would be quicker.
        with held_up(server.threads("side-door-0")[0]):
            ip("server", "link", "del", DOOR)
            ip("server", "link", "add", DOOR, "type", "veth", "peer", "name", "gother0")
        until("it is seen to be gone", lambda: server.figure("gnomon_side_door_up") == 0)
        right = probe.right
        time.sleep(0.5)
        must(probe.right > right, "no replies over UDP")
        until("it is in the log", lambda: "exception path's TAP device" in server.said())
        ip("server", "link", "del", DOOR)
        return f"TCP again after {tcp_again() * 1e3:.0f} ms"


@mark("exception path down", "`ip link set down` of its TAP device, and up", "UDP is answered all the while; TCP works again")
def side_door_down():
    with reached(on_cable(*BEHIND_IT)) as server, probing(ADDRESS) as probe:
        right = probe.right
        ip("server", "link", "set", DOOR, "down")
        time.sleep(0.5)
        must(probe.right > right, "no replies over UDP")
        ip("server", "link", "set", DOOR, "up")
        took = tcp_again()
        must(server.figure("gnomon_side_door_up") == 1, "down is not gone")
        return f"TCP again after {took * 1e3:.0f} ms"


@mark("exception path's address changed", "its TAP device gets another Ethernet address, as udev may give it", "set back; TCP works again")
def side_door_address():
    with reached(on_cable(*BEHIND_IT)) as server, probing(ADDRESS):
        ip("server", "link", "set", DOOR, "address", "02:00:00:00:00:99")
        took = tcp_again()
        must("Ethernet address was changed" in server.said(), "not in the log")
        return f"TCP again after {took * 1e3:.0f} ms"


# --- devices and frames ---------------------------------------------------------------------------------------


@mark("frames that are not what they say", "5,000 cut, overlong, flipped, fragmented, with bad sums", "counted by reason; good ones are answered")
def bad_frames():
    with reached(on_cable()) as server, probing(ADDRESS) as probe:
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        wire.bind(("wire1", 0))
        good = request_frame(b"get drill:7\r\n")
        for n in range(5_000):
            wire.send(SPOIL[n % len(SPOIL)](bytearray(good)))
        right = probe.right
        until("replies", lambda: probe.right > right + 20)
        wire.close()
        report = server.stop()
        must(len(report["dropped"]) >= 5, f"{report['dropped']}")
        return ", ".join(f"{n} {reason}" for reason, n in report["dropped"].items())


def request_frame(text):
    """A request as the client's kernel would send it, checksums left to the spoilers."""
    links = {"client": "wire1", "server": "wire0"}
    macs = {}
    for where, device in links.items():
        command = ["ip", "netns", "exec", _NAMESPACES[where], "cat", f"/sys/class/net/{device}/address"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        macs[where] = bytes.fromhex(said.strip().replace(":", ""))
    payload = b"\x12\x34\0\0\0\1\0\0" + text
    udp = (40_000).to_bytes(2, "big") + (11_211).to_bytes(2, "big") + (8 + len(payload)).to_bytes(2, "big") + b"\0\0"
    addresses = socket.inet_aton(CLIENT) + socket.inet_aton(V4)
    head = b"\x45\0" + (28 + len(payload)).to_bytes(2, "big") + b"\0\1\x40\0\x40\x11\0\0" + addresses
    head = head[:10] + checksum(head).to_bytes(2, "big") + head[12:]
    return macs["server"] + macs["client"] + b"\x08\0" + head + udp + payload


def checksum(data):
    """The Internet checksum (RFC 1071)."""
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF ^ total


def _put(frame, at, data):
    frame[at : at + len(data)] = data
    return bytes(frame)


def _resum(frame):
    frame[24:26] = b"\0\0"
    frame[24:26] = checksum(bytes(frame[14:34])).to_bytes(2, "big")
    return bytes(frame)


SPOIL = [
    lambda f: bytes(f[: random.randrange(15, len(f))]),  # cut
    lambda f: _put(f, random.randrange(14, len(f)), random.randbytes(1)),  # a byte changed
    lambda f: _put(f, 40, b"\x12\x34"),  # a wrong UDP checksum
    lambda f: _put(f, 24, b"\x12\x34"),  # a wrong IPv4 checksum
    lambda f: _resum(bytearray(_put(f, 20, b"\x20\x00"))),  # a first fragment
    lambda f: _resum(bytearray(_put(f, 20, b"\x00\x07"))),  # a later fragment
    lambda f: _resum(bytearray(_put(f, 16, b"\x05\xdc"))),  # longer than it is
    lambda f: bytes(f) + random.randbytes(1400),  # padding up to the MTU
    lambda f: _put(f, 0, random.randbytes(6)),  # to somebody else
    lambda f: _put(f, 12, random.randbytes(2)),  # another protocol
    lambda f: random.randbytes(len(f)),
]


@mark("flood at line rate", "100,000 requests as fast as the cable takes them", "what is too much is lost; replies go on")
def flood():
    with reached(on_cable()) as server:
        flood_probe = Probe(ADDRESS)
        for _ in range(100_000):
            flood_probe.send()
        took = Probe(ADDRESS).recovers()
        while flood_probe.receive(0.2) is not None:
            pass
        report = server.stop()
        must(report["answered"] > 0 and flood_probe.right > 0, f"{report}")
        return f"{flood_probe.right} right, replies again after {took * 1e3:.0f} ms"


# The last one: there is no cable afterwards.
@mark("the server's device removed", "`ip link del wire0` under the port", "no crash, TCP and metrics live; it ends in good order")
def own_device_removed():
    with reached(on_cable(*BEHIND_IT)) as server:
        ip("server", "link", "del", "wire0")
        time.sleep(1)
        must(server.process.poll() is None, "it ended")
        inside = ["ip", "netns", "exec", _NAMESPACES["server"], str(pathlib.Path(__file__).parent.parent / "memc.py")]
        said = subprocess.run([*inside, "tcp", ADDRESS, "get drill:7"], capture_output=True, timeout=drill.SOON_S, check=False)
        must(said.stdout == memc.hit(drill.key(7), drill.value(7)), f"{said.stdout[:60]!r} {said.stderr[-200:]!r}")
        return f"link up: {server.figure('gnomon_port_link_up'):.0f}"
