#!/usr/bin/env bash
# The bundle of `make gpu-check`, run as on a machine with a GPU: once over the SIMT executor, once over
# a libcuda made of it. Each step must be done, and no more files be left than can be taken home.
# That a step which fails costs no other is tools/tests/gpu_check.rs'.
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
# run NAME OPTION...: the bundle's run.sh, what it writes, and what became of the steps.
run() {
  local name=$1 out=$scratch/$1
  shift
  echo "== $name: run.sh $*"
  if ! (cd / && SIMT_PACKETS=2000 "$scratch/bundle/run.sh" "$@" --minutes 30); then
    tail -n 20 "$out/log.txt"
  fi
  if python3 - "$out" <<'PYTHON'; then good=$((good + 1)); else bad=$((bad + 1)); fi
import json, os, sys

out = sys.argv[1]
results = json.load(open(out + "/results.json"))
steps = {row["step"]: row["outcome"] for row in results["steps"]}
wanted = "sanity roofs lookup stage latency end-to-end sets parity driver cpu sanitizer study".split()
wrong = [f"{step}: {steps.get(step)}" for step in wanted if steps.get(step) != "done"]
page = open(out + "/report.md").read()
wrong += [f"report.md has no {part}" for part in ("## Goals", "## Steps") if part not in page]
files = [name for _, _, names in os.walk(out) for name in names]
if len(files) > 8 or sum(os.path.getsize(f"{out}/{name}") for name in files) >= 16 << 20:
    wrong.append(f"{files} are too many, or too large")
if not results["parity"][0]["passed"] > 10:
    wrong.append("the kernels' tests did not run")
print("\n".join(wrong) or f"{len(steps)} steps done in {results['seconds']:.0f} s")
sys.exit(bool(wrong))
PYTHON
}
run simt --simt "$scratch/simt"
LD_LIBRARY_PATH=$scratch/driver run cuda "$scratch/cuda" --tiny --items 2000 --index-items 4000
echo "$good passed, $bad failed"
[ "$bad" -eq 0 ]
