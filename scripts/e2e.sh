#!/usr/bin/env bash
# Real clients against a live server, in network namespaces that the scripts make and remove.
#
#   scripts/e2e.sh [NAME...]      names of scripts in tests/e2e without .sh; default: all
#   scripts/e2e.sh --against memcached|gnomon
#                                 the clients alone, on one server alone
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch
cargo build --release --workspace --bins -q
arguments=()
if [ "${1:-}" = --against ]; then
  arguments=("$@")
  set -- clients
fi
[ "$#" -gt 0 ] || set -- loopback pressure clients offload linear af_packet net_tap tcp_worker policy drills scale_out soak study

for name in "$@"; do
  echo "-- $name"
  log=$scratch/$name status=0
  # All that the script has started ends with it, so that what hangs does not hold the others up.
  timeout --kill-after=60 600 "tests/e2e/$name.sh" "${arguments[@]}" 2>&1 | tee "$log" || status=$?
  passed=$((passed + $(grep -c '^ok ' "$log" || true)))
  failed=$((failed + $(grep -c '^FAILED ' "$log" || true)))
  skipped=$((skipped + $(grep -c '^skipped ' "$log" || true)))
  if [ "$status" -ne 0 ] && ! grep -q '^FAILED ' "$log"; then
    not_ok "$name" "exit status $status"
  fi
done
totals
