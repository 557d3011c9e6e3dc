"""Every study runs to its end at its smallest size, says what it must, and leaves figures and plots that programs can
read. What it measures is not looked at: CI's machines are nobody's yardstick."""

import json
import os
import pathlib
import re
import tempfile
import xml.etree.ElementTree as xml

import pytest
from harness import processes
from harness.servers import GNOMON, TOOLS

STUDY = os.environ.get("STUDY", f"{TOOLS}/gnomon-study")
SERVER = f"gnomon={GNOMON} serve -p {{port}} -U 0 -m {{memory}} -t 1"
MACHINE = ("cpu", "processors", "memory", "kernel", "compiler", "optimised", "load_average")

LEAVES = """
offline offline memory path mixes shapes workers each_worker engines
stages stages ns batches
batch batch throughput latency in_flight load
simd simd keys batch hits dialect width
cache cache sizes ways
hitrate hitrate hitrate
fpga fpga rate cycles printed load hits pages parameters
schedule schedule cycles speed clocks chosen managed
tco tco ownership energy comparison
latency latency rtt inside
latency latency-key-mix-hit-rate mix
onesided onesided reads stags
tcp tcp-through-server tcp
"""
"""Studies of docs/papers.md: name, folder, tables of the figures."""

SAME = """
hitrate hitrate
fpga rate cycles load hits pages
simd keys batch hits dialect width
cache sizes ways
schedule cycles speed clocks chosen managed
"""
"""What does not depend on time: name, tables."""


@pytest.fixture(scope="module")
def out():
    """Where the studies leave what they leave."""
    with tempfile.TemporaryDirectory(prefix="gnomon-study-") as folder:
        yield pathlib.Path(folder)


def leaves(check, folder, name, *tables):
    """The figures of a study have its facts and rows in these tables, and there is a plot, all well-formed."""
    with check.named(f"{folder.name} leaves figures and plots"):
        figures = json.loads((folder / f"{name}.json").read_text())
        assert figures["study"] == name and figures["seed"] == 1 and figures["seconds"] > 0, figures
        assert len(figures["commit"]) >= 7, figures["commit"]
        for fact in MACHINE:
            assert figures["machine"][fact] not in ("", None), fact
        for table in tables:
            assert len(figures[table]) > 0, table
            for row in figures[table]:
                assert row.get("wrong", 0) == 0, row
        plots = sorted(folder.glob(f"{name}-*.svg"))
        assert plots, "no plot"
        for plot in plots:
            root = xml.parse(plot).getroot()
            assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
            drawn = [e for e in root.iter() if e.tag.split("}")[1] in ("polyline", "rect")]
            assert len(drawn) > 1, f"{plot}: nothing is drawn"


def tries(check, out, folder, name, table, *options):
    """A study that is on no row of the page."""
    check.runs(f"{folder} runs", "timeout", "80", STUDY, name, *options, "--quick", "--out", out / folder)
    leaves(check, out / folder, name, table)


def test_papers(check, out):
    check.runs("every command of docs/papers.md runs at its smallest size", "scripts/papers.py", "--quick", STUDY, out)
    for line in LEAVES.strip().splitlines():
        name, folder, *tables = line.split()
        leaves(check, out / folder, name, *tables)
    for line in SAME.strip().splitlines():
        name, *tables = line.split()
        processes.run(STUDY, name, "--quick", "--out", out / "again")
        with check.named(f"{name}: one seed, one result"):
            one, two = (json.loads((out / folder / f"{name}.json").read_text()) for folder in (name, "again"))
            for table in tables:
                assert one[table] == two[table], table


def test_others(check, out):
    tries(check, out, "cache-given", "cache", "given", "--cache", "48k:128:6")
    live = ("--memory", "64", "--server", SERVER)
    tries(check, out, "hitrate-live", "hitrate-live", "scores", "--trace", "zipf099", *live)
    tries(check, out, "tcp-sockets", "tcp", "tcp", *live)


@pytest.mark.needs("namespaces")
def test_wire(check, out):
    server = SERVER.replace("serve", "serve -l {address}")
    through = ("--memory", "64", "--through", "net_tap", "--gnomon", GNOMON, "--server", server)
    tries(check, out, "tcp-net_tap", "tcp", "tcp", *through)


def test_page(check):
    """Every row of the page of the papers has a command or says why not, and no table or figure is left out."""
    text = pathlib.Path("docs/papers.md").read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| (figure|table)", line)]
    reason = re.compile(r"`gnomon-study |picture|GPU|wire|missing|scale-out|–")
    numbers = {"MemcachedGPU": (7, 6), "Mega-KV": (20, 3), "FPGA": (9, 3), "soft-RDMA": (8, 0), "ISPASS": (14, 0)}
    with check.named("docs/papers.md: every table and figure has a command or a reason"):
        assert len(rows) > 30, len(rows)
        for row in rows:
            assert reason.search(row.split("|")[3]), f"neither command nor reason: {row}"
        for section in re.split(r"^## ", text, flags=re.M)[1:]:
            figures, tables = next(v for k, v in numbers.items() if k in section.splitlines()[0])
            named = {"figure": set(), "table": set()}
            for row in (line.split("|")[1] for line in section.splitlines() if line.startswith("|")):
                for kind, list_ in re.findall(r"(figure|table)s? ([0-9, to]+)", row):
                    for part in filter(None, map(str.strip, list_.split(","))):
                        first, _, last = part.partition(" to ")
                        named[kind] |= set(range(int(first), int(last or first) + 1))
            assert named["figure"] == set(range(1, figures + 1)), (section.splitlines()[0], named["figure"])
            assert named["table"] == set(range(1, tables + 1)), (section.splitlines()[0], named["table"])
