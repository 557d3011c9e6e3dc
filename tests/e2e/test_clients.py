"""Real client programs and libraries, every verb that each has, over loopback and kernel sockets.

    scripts/e2e.sh clients [--against memcached|gnomon] [--only NAME]...

The genuine server first: what the batteries expect must be true of it. Each battery stands in tests/e2e/clients, takes
HOST:PORT, and may be run alone; some flush the server."""

import pathlib

import pytest
from harness import needs
from harness.servers import GENUINE, HERE

METRICS = "127.0.0.1:9150"
BATTERIES = pathlib.Path("tests/e2e/clients")
# Outside of the source, and kept.
CRATE = pathlib.Path("target/clients/cargo")
GO = pathlib.Path("target/clients/gomemcache-battery")

BUILD_GO = {"GO111MODULE": "off", "GOFLAGS": "", "GOPATH": "/usr/share/gocode"}
"""The libraries in Go as Debian packages them, from where it installs them: no network is asked."""


PYTHON = "pymemcache python_memcached pylibmc bmemcached aiomcache meta_memcache django twisted".split()

ALL = {
    **{name: f"{name}_battery.py" for name in PYTHON},
    "Cache::Memcached::Fast": "cache_memcached_fast.pl",
    "Dalli": "dalli.rb",
    "crate": CRATE / "debug/memcache-battery",
    "gomemcache": GO,
    "PHP": "memcached.php",
    "node, memjs": "node/memjs_battery.js",
    "node, memcached": "node/memcached_battery.js",
    "libmemcached": "libmemcached_tools.sh",
    "memcached-tool": "memcached_tool.sh",
    "exporter": "exporter.py",
}
"""Clients, and their programs."""

NEEDS = {"gomemcache": "go", "PHP": "php", "node, memjs": "node", "node, memcached": "node"}
SAY_WHO_THEY_ARE = ("crate", "memcached-tool")
WITH_SASL = ("bmemcached", "Dalli", "node, memjs")
LOGIN = {"MEMCACHE_USERNAME": "ann", "MEMCACHE_PASSWORD": "a secret: of hers"}


def build_crate(check):
    """The battery in Rust."""
    built = f"cargo build -q --locked --manifest-path {BATTERIES}/memcache_crate/Cargo.toml --target-dir {CRATE}"
    check.runs("the crate's battery", *built.split())


def runs(check, place, program, libraries, server, label, env=()):
    """The checks of a battery. None takes this long."""
    program = program if isinstance(program, pathlib.Path) else BATTERIES / program
    python = libraries if program.suffix == ".py" else []
    command = ("timeout", "--foreground", "240", *python, program, server, "--label", f"{label} ")
    check.counted(*place.argv(*command), env={"NODE_PATH": "target/clients/node/node_modules", **dict(env)})


def pytest_generate_tests(metafunc):
    if "who" in metafunc.fixturenames:
        metafunc.parametrize("who", metafunc.config.getoption("against") or ["memcached", "gnomon"])


def test_libraries(check, libraries):
    check("the libraries in Python")


def test_clients(check, subtests, host, memcached, gnomon, slap, libraries, pytestconfig, who):
    only = pytestconfig.getoption("only")
    wanted = [name for name in ALL if name in only or not only]
    build_crate(check)
    if not needs.lacking("go"):
        env = BUILD_GO | {"GOCACHE": pathlib.Path("target/clients/go").resolve()}
        check.runs("the battery in Go", "go", "build", "-o", GO, f"./{BATTERIES}/gomemcache", env=env)
    if who == "memcached":
        at, up = GENUINE, memcached(host, "-m", "512")
    else:
        at, up = HERE, gnomon(host, "-m", "512", "--metrics", METRICS)
        up.serves("gnomon starts")
    for name in wanted:
        if why := name in NEEDS and needs.lacking(NEEDS[name]):
            with subtests.test(name):
                pytest.skip(why)
        else:
            label = f"{who}," if name in SAY_WHO_THEY_ARE else f"{who}, {name}:"
            runs(check, host, ALL[name], libraries, at, label)
    if who == "gnomon":
        runs(check, host, "prometheus_battery.py", libraries, METRICS, f"{who}, prometheus:")
    if not only:
        loads(slap, host, who, at)
    if who == "memcached":
        check("memcached is still there", not up.gone() and up.end())
    else:
        up.stop()


def test_clients_with_sasl(check, subtests, host, gnomon, libraries, pytestconfig, tmp_path):
    """The batteries of clients that authenticate in the binary protocol, which alone is spoken."""
    only = pytestconfig.getoption("only")
    users = tmp_path / "users"
    users.write_text("{MEMCACHE_USERNAME}:{MEMCACHE_PASSWORD}\n".format(**LOGIN))
    users.chmod(0o600)
    up = gnomon(host, "-m", "512", "-Y", str(users), "-S", "-B", "binary")
    up.ready("gnomon starts")
    for name in WITH_SASL:
        if only and name not in only:
            continue
        if why := name in NEEDS and needs.lacking(NEEDS[name]):
            with subtests.test(name):
                pytest.skip(why)
        else:
            runs(check, host, ALL[name], libraries, HERE, f"gnomon, {name} with SASL:", LOGIN)
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
