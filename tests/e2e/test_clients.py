"""Real client programs and libraries, every verb that each has, over loopback and kernel sockets.

    scripts/e2e.sh clients [--against memcached|gnomon] [--only NAME]...

The genuine server first: what the batteries expect must be true of it. Each battery stands in tests/e2e/clients, takes
HOST:PORT, and may be run alone; some flush the server."""

import dataclasses
import pathlib

import pytest
from harness import needs
from harness.servers import GENUINE, HERE

pytestmark = pytest.mark.needs("namespaces")

METRICS = "127.0.0.1:9150"
BATTERIES = pathlib.Path("tests/e2e/clients")
# Outside of the source, and kept.
CRATE = pathlib.Path("target/clients/cargo")
GO = pathlib.Path("target/clients/gomemcache-battery")

BUILD_GO = {"GO111MODULE": "off", "GOFLAGS": "", "GOPATH": "/usr/share/gocode"}
"""The libraries in Go as Debian packages them, from where it installs them: no network is asked."""


@dataclasses.dataclass
class Battery:
    """A client: its name, its program, what that needs, and the label of its checks where it is not the name."""

    name: str
    program: pathlib.Path
    need: str = ""
    label: str = None

    def argv(self, libraries):
        """How it is started."""
        return [*libraries, self.program] if self.program.suffix == ".py" else [self.program]

    def prefix(self, who):
        """What its checks begin with."""
        label = self.name if self.label is None else self.label
        return f"{who}, {label}: " if label else f"{who}, "


def in_python(name):
    """A battery with the libraries of requirements.txt."""
    path = next(path for path in (BATTERIES / f"{name}_battery.py", BATTERIES / f"{name}.py") if path.exists())
    return Battery(name, path)


def in_node(name):
    """A battery with the libraries of node/package.json."""
    return Battery(name, BATTERIES / f"node/{name}_battery.js", "node", f"node, {name}")


PYTHON = "pymemcache python_memcached pylibmc bmemcached aiomcache meta_memcache django twisted".split()

ALL = [
    *map(in_python, PYTHON),
    Battery("Cache::Memcached::Fast", BATTERIES / "cache_memcached_fast.pl"),
    Battery("Dalli", BATTERIES / "dalli.rb"),
    Battery("crate", CRATE / "debug/memcache-battery", label=""),
    Battery("gomemcache", GO, "go"),
    Battery("PHP", BATTERIES / "memcached.php", "php"),
    in_node("memjs"),
    in_node("memcached"),
    Battery("libmemcached", BATTERIES / "libmemcached_tools.sh"),
    Battery("memcached-tool", BATTERIES / "memcached_tool.sh", label=""),
    in_python("exporter"),
]


def build_crate(check):
    """The battery in Rust."""
    built = f"cargo build -q --locked --manifest-path {BATTERIES}/memcache_crate/Cargo.toml --target-dir {CRATE}"
    check.runs("the crate's battery", *built.split())


def runs(check, place, battery, libraries, server, who):
    """The checks of one. None takes this long."""
    command = ("timeout", "--foreground", "240", *battery.argv(libraries), server, "--label", battery.prefix(who))
    check.counted(*place.argv(*command), env={"NODE_PATH": "target/clients/node/node_modules"})


def pytest_generate_tests(metafunc):
    if "who" in metafunc.fixturenames:
        metafunc.parametrize("who", metafunc.config.getoption("against") or ["memcached", "gnomon"])


def test_libraries(check, libraries):
    check("the libraries in Python")


def test_clients(check, subtests, host, memcached, gnomon, slap, libraries, pytestconfig, who):
    only = pytestconfig.getoption("only")
    wanted = [battery for battery in ALL if battery.name in only or not only]
    build_crate(check)
    if not needs.NEEDS["go"]():
        env = BUILD_GO | {"GOCACHE": pathlib.Path("target/clients/go").resolve()}
        check.runs("the battery in Go", "go", "build", "-o", GO, f"./{BATTERIES}/gomemcache", env=env)
    if who == "memcached":
        at, up = GENUINE, memcached(host, "-m", "512")
    else:
        at, up = HERE, gnomon(host, "-m", "512", "--metrics", METRICS)
        up.serves("gnomon starts")
    for battery in wanted:
        if why := battery.need and needs.NEEDS[battery.need]():
            with subtests.test(battery.name):
                pytest.skip(why)
        else:
            runs(check, host, battery, libraries, at, who)
    if who == "gnomon":
        runs(check, host, in_python("prometheus"), libraries, METRICS, who)
    if not only:
        loads(slap, host, who, at)
    if who == "memcached":
        check("memcached is still there", not up.gone() and up.end())
    else:
        up.stop()


def loads(slap, host, who, at):
    """memcaslap in each protocol and over each transport that it has: so many operations, every value verified,
    nothing lost."""
    all_loads = {
        "over TCP": "",
        "over TCP, some with an exptime": "-e 0.1",
        "-d 10: multi-get": "-d 10",
        "-B: binary": "-B",
        "-B -d 10: binary multi-get": "-B -d 10",
        "-U: UDP": "-U",
    }
    # These two abort against memcached, which sends each value as a message of its own.
    if who == "gnomon":
        all_loads |= {
            "-U -d 10: multi-get over UDP": "-U -d 10",
            "-a -d 10: set by TCP, multi-get by UDP": "-a -d 10",
        }
    for name, args in all_loads.items():
        slap(f"{who}, memcaslap {name}", host, "-s", at, "-T", "1", "-c", "8", "-x", "40000", *args.split())
