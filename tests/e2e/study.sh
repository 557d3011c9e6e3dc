#!/usr/bin/env bash
# Every study runs to its end at its smallest size, says what it must, and leaves figures and plots
# that programs can read. What it measures is not looked at: CI's machines are nobody's yardstick.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
study=${STUDY:-target/release/gnomon-study}
out=$scratch/study

# left NAME DIRECTORY TABLE...: the figures of a study have its facts and rows in these tables, and there is a
# plot, all well-formed.
left() {
  python3 - "$out" "$@" <<'LEFT'
import json, pathlib, sys
import xml.etree.ElementTree as xml

out, name, directory, *tables = sys.argv[1:]
out = pathlib.Path(out, directory)
figures = json.loads((out / f"{name}.json").read_text())
assert figures["study"] == name and figures["seed"] == 1 and figures["seconds"] > 0, figures
assert len(figures["commit"]) >= 7, figures["commit"]
for fact in ("cpu", "processors", "memory", "kernel", "compiler", "optimised", "load_average"):
    assert figures["machine"][fact] not in ("", None), fact
for table in tables:
    assert len(figures[table]) > 0, table
    for row in figures[table]:
        assert row.get("wrong", 0) == 0, row
plots = sorted(out.glob(f"{name}-*.svg"))
assert plots, "no plot"
for plot in plots:
    root = xml.parse(plot).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
    drawn = [e for e in root.iter() if e.tag.split("}")[1] in ("polyline", "rect")]
    assert len(drawn) > 1, f"{plot}: nothing is drawn"
LEFT
}

check "every command of docs/papers.md runs at its smallest size" scripts/papers.py --quick "$study" "$out"

# leaves NAME DIRECTORY TABLE...
leaves() {
  check "$2 leaves figures and plots" left "$@"
}

leaves offline offline memory path mixes shapes workers each_worker engines
leaves stages stages ns batches
leaves batch batch throughput latency in_flight load
leaves simd simd keys batch hits dialect width
leaves cache cache sizes ways
leaves hitrate hitrate hitrate
leaves fpga fpga rate cycles printed load hits pages parameters
leaves schedule schedule cycles speed clocks chosen managed
leaves tco tco ownership energy comparison
leaves latency latency rtt inside
leaves latency latency-key-mix-hit-rate mix
leaves onesided onesided reads stags
leaves tcp tcp-through-server tcp

# try_study NAME DIRECTORY TABLE OPTION...: one that is on no row.
try_study() {
  local name=$1 directory=$2 table=$3
  shift 3
  check "$directory runs" timeout 80 "$study" "$name" "$@" --quick --out "$out/$directory"
  leaves "$name" "$directory" "$table"
}

server="gnomon=$gnomon serve -p {port} -U 0 -m {memory} -t 1"
try_study cache cache-given given --cache 48k:128:6
try_study hitrate-live hitrate-live scores --memory 64 --trace zipf099 --server "$server"
try_study tcp tcp-sockets tcp --memory 64 --server "$server"

# same NAME TABLE...: what does not depend on time is the same each time.
same() {
  "$study" "$1" --quick --out "$scratch/again" >/dev/null 2>&1
  python3 - "$out" "$scratch/again" "$@" <<'SAME'
import json, pathlib, sys

one, two, name, *tables = sys.argv[1:]
files = (pathlib.Path(one, name), pathlib.Path(two))
one, two = (json.loads((d / f"{name}.json").read_text()) for d in files)
for table in tables:
    assert one[table] == two[table], table
SAME
}

# Every row of the page of the papers has a command or says why not, and no table or figure is left out.
papers() {
  python3 - docs/papers.md <<'PAPERS'
import pathlib, re, sys

text = pathlib.Path(sys.argv[1]).read_text()
rows = [line for line in text.splitlines() if re.match(r"\| (figure|table)", line)]
assert len(rows) > 30, len(rows)
reason = re.compile(r"`gnomon-study |picture|GPU|wire|missing|scale-out|–")
for row in rows:
    assert reason.search(row.split("|")[3]), f"neither command nor reason: {row}"
numbers = {"MemcachedGPU": (7, 6), "Mega-KV": (20, 3), "FPGA": (9, 3), "soft-RDMA": (8, 0), "ISPASS": (14, 0)}
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
PAPERS
}
check "docs/papers.md: every table and figure has a command or a reason" papers
check "hitrate: one seed, one result" same hitrate hitrate
check "fpga: one seed, one result" same fpga rate cycles load hits pages
check "simd: one seed, one result" same simd keys batch hits dialect width
check "cache: one seed, one result" same cache sizes ways
check "schedule: one seed, one result" same schedule cycles speed clocks chosen managed
need_netns
try_study tcp tcp-net_tap tcp --memory 64 --through net_tap --gnomon "$gnomon" \
  --server "gnomon=$gnomon serve -l {address} -p {port} -U 0 -m {memory} -t 1"

totals
