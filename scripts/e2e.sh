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
release_build
arguments=()
if [ "${1:-}" = --against ]; then
  arguments=("$@")
  set -- clients
fi
[ "$#" -gt 0 ] || set -- loopback newest memcached_tests pressure hostile clients offload linear af_packet af_xdp net_tap tcp_worker bad_wire netem isolated rdma reads tls policy drills scale_out soak study

# run NAME: with all that the script has started ending with it, so that what hangs does not hold the
# others up.
run() {
  timeout --kill-after=60 600 "tests/e2e/$1.sh" "${arguments[@]}" 2>&1
}
# collect NAME STATUS: adds up what it said.
collect() {
  local log=$scratch/$1
  passed=$((passed + $(grep -c '^ok ' "$log" || true)))
  failed=$((failed + $(grep -c '^FAILED ' "$log" || true)))
  skipped=$((skipped + $(grep -c '^skipped ' "$log" || true)))
  if [ "$2" -ne 0 ] && ! grep -q '^FAILED ' "$log"; then
    not_ok "$1" "exit status $2"
  fi
}

# A soak is a small load for a long time: it runs beside the others.
soak=
if [ "$#" -gt 1 ] && [[ " $* " == *" soak "* ]]; then
  run soak >"$scratch/soak" &
  soak=$!
  undo kill -TERM "$soak"
fi
for name in "$@"; do
  [ "$name" != soak ] || [ -z "$soak" ] || continue
  echo "-- $name"
  status=0
  run "$name" | tee "$scratch/$name" || status=$?
  collect "$name" "$status"
done
if [ -n "$soak" ]; then
  echo "-- soak"
  status=0
  wait "$soak" || status=$?
  cat "$scratch/soak"
  collect soak "$status"
fi
totals
