"""Fault drills: what must not kill a running gnomon is done to it, one kind at a time. docs/drills.md lists them, and
is compared with what is run.

    scripts/e2e.sh drills [-k process|wire|tests] [--only NAME]..."""

import pathlib
import re

import pytest
from harness.namespaces import veth_pair
from harness.servers import GNOMON

RUN = "tests/e2e/drills/run.py"


@pytest.fixture
def drills(check, pytestconfig):
    """drills(KIND, ARGS..., place=NAMESPACE): the drills of a kind."""

    def run(kind, *args, place=None):
        command = (RUN, kind, *args, *pytestconfig.getoption("only"))
        check.counted(*(place.argv(*command) if place else command), env={"GNOMON": GNOMON})

    return run


def test_pages(check):
    check.runs("wrong replies are noticed", RUN, "judge")
    table = ("bash", "-c", f"diff -u docs/drills.md <({RUN} table)")
    check.runs("docs/drills.md lists what is run", *table)

    def named(page):
        return set(re.findall("`((?:gnomon|memcached)_[a-z_]+)", pathlib.Path(page).read_text()))

    missing = named("docs/bad-days.md") - named("docs/metrics.md")
    check("docs/bad-days.md names metrics that there are", not missing, str(missing))


def test_tests(drills):
    drills("tests")


def test_process(namespace, drills):
    drills("process", place=namespace("client"))


def test_wire(namespace, drills):
    server, client = namespace("server"), namespace("client")
    veth_pair(server, client)
    client.client_addresses("wire1")
    drills("wire", server.name, client.name, place=client)
