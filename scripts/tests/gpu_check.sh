#!/usr/bin/env bash
# The bundle of `make gpu-check`, run as on a machine with a GPU: once over the SIMT executor, once over
# a libcuda made of it. Each step must be done, and no more files be left than can be taken home.
# Then with a device that refuses every launch, where each step must fail, be named, and cost no other;
# and with one whose answers are wrong. How steps fail one by one is tools/tests/gpu_check.rs'.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch

scripts/gpu_check.sh --dev
mkdir "$scratch/driver"
gpu/simt/make_driver.sh "$scratch/driver"
# Where nothing of the repository is.
cp -r target/gpu-check "$scratch/bundle"

good=0 bad=0
# run NAME WANTED OPTION...: the bundle's run.sh, what it writes, and what became of the steps: WANTED is
# STEP=OUTCOME,..., and done of all others. A step that failed has its reason in the report.
run() {
  local name=$1 wanted=$2 out=$scratch/$1 status=0
  shift 2
  echo "== $name: run.sh $*"
  (cd / && SIMT_PACKETS=${SIMT_PACKETS:-2000} "$scratch/bundle/run.sh" "$@" --minutes 30) >"$scratch/said" || status=$?
  cat "$scratch/said"
  if python3 - "$out" "$status" "$wanted" "$scratch/said" <<'PYTHON'; then
import json, os, sys

out, status, wanted, said = sys.argv[1:]
results = json.load(open(out + "/results.json"))
steps = {row["step"]: row for row in results["steps"]}
page = open(out + "/report.md").read()
every = "sanity roofs lookup stage latency end-to-end whole sets parity driver cpu sanitizer study".split()
outcomes = dict.fromkeys(every, "done")
if wanted.startswith("only:"):
    outcomes = {}
outcomes |= dict(each.split("=") for each in wanted.removeprefix("only:").split(",") if each)
wrong = []
for step, outcome in outcomes.items():
    row = steps.get(step, {})
    if row.get("outcome") != outcome:
        wrong.append(f"{step}: {row.get('outcome')}, {row.get('why')}")
    if f"| {step} | {outcome} |" not in page or (outcome == "failed" and not row.get("why")):
        wrong.append(f"report.md does not say that {step} is {outcome}, or why")
if int(status) != any(outcome != "done" for outcome in outcomes.values()):
    wrong.append(f"run.sh ended with status {status}")
wrong += [f"report.md has no {part}" for part in ("## Goals", "## Steps") if part not in page]
if open(said).read().count("\n|---") != 2:
    wrong.append("run.sh shows other tables than goals and steps")
files = [name for _, _, names in os.walk(out) for name in names]
if len(files) > 8 or sum(os.path.getsize(f"{out}/{name}") for name in files) >= 16 << 20:
    wrong.append(f"{files} are too many, or too large")
if outcomes["parity"] == "done" and not results["parity"][0]["passed"] > 10:
    wrong.append("the kernels' tests did not run")
print("\n".join(wrong) or f"{len(steps)} steps, as they should be, in {results['seconds']:.0f} s")
sys.exit(bool(wrong))
PYTHON
    good=$((good + 1))
  else
    bad=$((bad + 1))
    tail -n 20 "$out/log.txt"
  fi
}
run simt "" --simt "$scratch/simt"
export LD_LIBRARY_PATH=$scratch/driver
tiny=(--tiny --items 2000 --index-items 4000)
run cuda "" "$scratch/cuda" "${tiny[@]}"
export SIMT_PACKETS=50
# A checker that does what it is given to check.
mkdir "$scratch/checker"
printf '#!/bin/sh\nshift 4\nexec "$@"\n' >"$scratch/checker/compute-sanitizer"
chmod +x "$scratch/checker/compute-sanitizer"
all_fail=$(printf '%s=failed,' sanity roofs lookup stage latency end-to-end whole sets parity driver sanitizer study)
PATH=$scratch/checker:$PATH GNOMON_DRIVER_PLAN="cuLaunchKernel 719 0" \
  run refused "$all_fail" "$scratch/refused" "${tiny[@]}"
GNOMON_DRIVER_PLAN="answers 1 0" \
  run wrong only:sanity=failed,parity=failed,cpu=done "$scratch/wrong" "${tiny[@]}" --steps sanity,parity,cpu
echo "$good passed, $bad failed"
[ "$bad" -eq 0 ]
