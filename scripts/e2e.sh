#!/usr/bin/env bash
# Real clients against a live server, in network namespaces that the tests make and remove.
#
#   scripts/e2e.sh [NAME...] [OPTION...]     tests/e2e/test_NAME.py; default: all
#   scripts/e2e.sh --against memcached|gnomon
#                                 the clients alone, on one server alone
#
# Options are pytest's, and those of tests/conftest.py: --whole, --only NAME, --file-seconds N, -k, -m.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch
made_venv target/pytest tests/requirements.txt
release_build
files=()
while [ "$#" -gt 0 ] && [[ $1 != -* ]]; do
  files+=("tests/e2e/test_$1.py")
  shift
done
options=("$@")
[ "${#files[@]}" -gt 0 ] || [[ " $* " != *" --against"* ]] || files=(tests/e2e/test_clients.py)

# lane NAME ARGS...: the tests of a lane.
lane() {
  exec target/pytest/bin/pytest --lane "$@" "${options[@]}" "${files[@]:-tests/e2e}"
}

# A soak is a small load for a long time: it runs beside all others. Attacks are alone, because their honest clients' waits
# are compared. Two of the others at a time: they wait for clocks and clients.
lane beside >"$scratch/beside" 2>&1 &
beside=$!
undo stop_pid "$beside"
counted lane alone
two=(-n 2 --dist loadfile --no-loadscope-reorder)
[ "${#files[@]}" -ne 1 ] || two=()
counted lane pairs "${two[@]}"
status=0
wait "$beside" || status=$?
counted sh -c "cat '$scratch/beside'; exit $status"
[ $((passed + failed + skipped)) -gt 0 ] || not_ok "e2e" "nothing of this name: ${files[*]} ${options[*]}"
totals
