"""Fixtures of the end-to-end tests, and where and when each file of them runs. docs/testing.md says how they are
called.

All that a fixture has made is gone when its test ends, however it ends."""

import contextlib
import functools
import os
import pathlib
import signal
import tempfile

import pytest
from harness import checks, namespaces, needs, report, servers, slap as slapping, wires

ROOT = pathlib.Path(__file__).resolve().parents[1]

LONGEST_FIRST = """soak hostile rdma drills linear loopback clients tcp_worker newest netem memcached_tests isolated
  pressure tls hostile_tcp net_tap af_xdp af_packet reads bad_wire scale_out study offload policy""".split()
"""Files in this order, so that none is waited for at the end; those that are not named come last."""

TEARDOWN_S = 60
"""How long each thing may take that a file does after its time is over."""


# --- options, order, limits ---------------------------------------------------------------------------


def pytest_addoption(parser):
    group = parser.getgroup("gnomon")
    group.addoption("--against", action="append", choices=("memcached", "gnomon"), help="clients: this server alone")
    group.addoption("--whole", action="store_true", help="at full size, and the tests marked `whole`")
    group.addoption("--file-seconds", type=int, default=600, help="a file that takes longer is ended (0: never)")
    group.addoption("--only", action="append", default=[], metavar="NAME", help="drills, clients: those of this name")
    group.addoption("--lane", choices=("alone", "beside", "pairs"), help="tests with this mark; pairs: with neither")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    os.chdir(ROOT)
    # SIGTERM ends a run as Ctrl-C does, which a shell has programs in the background ignore.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    config.pluginmanager.register(report, "no letters")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(report.Report(config), "report")


def pytest_collection_modifyitems(config, items):
    def place(item):
        name = report.file_of(item.nodeid)
        return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)

    def wanted(item):
        lane = next((lane for lane in ("alone", "beside") if item.get_closest_marker(lane)), "pairs")
        if config.getoption("lane") not in (None, lane):
            return False
        if item.get_closest_marker("whole") and not config.getoption("whole"):
            return False
        return not item.get_closest_marker("asked") or asked

    words = config.option.keyword
    asked = "asked" in config.option.markexpr or bool(words) and "not " not in words

    left_out = [item for item in items if not wanted(item)]
    items[:] = sorted((item for item in items if wanted(item)), key=place)
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    # A lane may be empty.
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("lane"):
        session.exitstatus = pytest.ExitCode.OK


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        for need in mark.args:
            if why := needs.lacking(need):
                pytest.skip(why)


@pytest.fixture(scope="module", autouse=True)
def in_time(request):
    """What hangs does not hold the others up: the test that is at it when the file's time is over fails, and so do
    those after it, each with the calls that it is in."""

    def over(*_):
        checks.over = f"the file has taken more than {seconds} s"
        pytest.fail(checks.over)

    checks.over = ""
    seconds = request.config.getoption("file_seconds")
    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, TEARDOWN_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


# --- fixtures -------------------------------------------------------------------------------------------


@pytest.fixture
def check(subtests, request):
    """Checks by their names."""
    checks.in_time()
    return checks.Check(subtests, request.node.user_properties)


@pytest.fixture
def undo():
    """What is to be undone at the end of the test, last in, first out."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def scratch(undo):
    """A directory of the test's own."""
    return pathlib.Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="gnomon-")))


@pytest.fixture
def namespace(undo):
    """namespace(NAME): a network namespace."""

    def make(name):
        if why := needs.lacking("namespaces"):
            pytest.skip(why)
        made = namespaces.Namespace(name)
        undo.callback(made.delete)
        return made

    return make


@pytest.fixture
def host(namespace):
    """A namespace, in which port 11211 is free whatever else the machine runs."""
    return namespace("host")


@pytest.fixture
def gnomon(check, undo, scratch):
    """gnomon(NAMESPACE, FLAGS...): `gnomon serve`."""
    numbers = iter(range(100))

    def start(place, *flags):
        log = scratch / f"server{next(numbers)}.log"
        return undo.enter_context(servers.Server(check, place, *flags, log=log))

    return start


@pytest.fixture
def memcached(check, undo, scratch):
    """memcached(NAMESPACE, FLAGS...): the genuine server; `program`: another build of it."""

    def start(place, *flags, **options):
        return undo.enter_context(servers.Memcached(check, place, *flags, log=scratch / "memcached.log", **options))

    return start


@pytest.fixture
def slap(check):
    """slap(NAME, NAMESPACE, ARGS...): memcaslap; `lost`: strict or counted."""
    return functools.partial(slapping.slap, check)


@pytest.fixture
def wire(check, namespace, gnomon, undo, scratch):
    """wire(KIND, FLAGS...): the appliance behind a port of that kind, serving."""

    def up(kind, *flags):
        return wires.wire_up(kind, flags, check=check, namespace=namespace, gnomon=gnomon, undo=undo, scratch=scratch)

    return up


@pytest.fixture(scope="session")
def newest():
    """The newest memcached that Debian has the source of, built: its program."""
    return pathlib.Path(namespaces.must("timeout", "600", "tests/e2e/newest_memcached.sh").strip())


@pytest.fixture(scope="session")
def libraries():
    """Python with the client libraries, outside of the source, and kept."""
    made = "made_venv target/clients/venv tests/e2e/clients/requirements.txt"
    namespaces.must("timeout", "600", "bash", "-c", f". scripts/lib.sh; {made}")
    return ["target/clients/venv/bin/python", "-B"]
