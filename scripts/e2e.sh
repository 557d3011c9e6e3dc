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
# The longest first.
[ "$#" -gt 0 ] || set -- soak rdma tcp_worker drills hostile clients net_tap af_packet af_xdp loopback newest memcached_tests \
  hostile_tcp pressure offload linear bad_wire netem isolated reads tls policy scale_out study

# run NAME: with all that the script has started ending with it, so that what hangs does not hold the
# others up. Shown as a whole when it has ended.
run() {
  local status=0 began=$SECONDS
  timeout --kill-after=60 600 "tests/e2e/$1.sh" "${@:2}" >"$scratch/$1" 2>&1 || status=$?
  echo "$status" >"$scratch/$1.status"
  flock "$scratch" sh -c "echo '-- $1, $((SECONDS - began)) s'; cat '$scratch/$1'"
}
# collect NAME: adds up what it said.
collect() {
  local log=$scratch/$1 status
  passed=$((passed + $(grep -c '^ok ' "$log" || true)))
  failed=$((failed + $(grep -c '^FAILED ' "$log" || true)))
  skipped=$((skipped + $(grep -c '^skipped ' "$log" || true)))
  status=$(cat "$scratch/$1.status")
  if [ "$status" -ne 0 ] && ! grep -q '^FAILED ' "$log"; then
    not_ok "$1" "exit status $status"
  fi
}

# A soak is a small load for a long time: it runs beside all others.
soak=
if [ "$#" -gt 1 ] && [[ " $* " == *" soak "* ]]; then
  run soak &
  soak=$!
  undo kill -TERM "$soak"
fi
# Two of the others at a time: they wait for clocks and clients. Attacks are alone, because their honest clients' waits
# are compared.
pairs=()
for name in "$@"; do
  case $name in
    soak) [ -n "$soak" ] || run soak ;;
    hostile) run hostile ;;
    *) pairs+=("$name") ;;
  esac
done
export scratch
export -f run
printf '%s\n' "${pairs[@]}" | xargs -r -P 2 -I{} bash -c 'run "$@"' run {} "${arguments[@]}" &
lanes=$!
undo kill -TERM "$lanes"
wait "$lanes"
[ -z "$soak" ] || wait "$soak"
for name in "$@"; do
  collect "$name"
done
totals
