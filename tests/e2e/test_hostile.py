"""Attacks on a live server, beside honest clients that look at every byte: the files of tests/hostile, at their small
size. `-k hangers`: one of them.

`make hostile` is `--whole`: at full size, and with the loads under which a store must not run out of memory; an
hour."""

import pathlib
import resource

import pressure
import pytest
from harness.servers import GNOMON

pytestmark = pytest.mark.alone

FILES = sorted(path for path in pathlib.Path("tests/hostile").glob("*.py") if path.stem != "attack")


@pytest.fixture(autouse=True)
def open_files():
    """As many as there may be."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_hostile(check, pytestconfig, file):
    longest, size = ("3600", []) if pytestconfig.getoption("whole") else ("120", ["--small"])
    server = pathlib.Path(GNOMON).resolve()
    command = ("timeout", "--kill-after=10", longest, "python3", file, "--server", server, *size)
    if not check.counted(*command):
        check(f"hostile: {file.stem}", False, "says nothing")


@pytest.mark.whole
@pytest.mark.parametrize("load", pressure.LOADS)
def test_pressure(check, load):
    check.counted("timeout", "--kill-after=10", "3600", "tests/e2e/pressure.py", load, env={"GNOMON": GNOMON})
