#!/usr/bin/env bash
# gnomon beside memcached, in one run, three ways. First the same client and the same requests over
# kernel sockets on loopback, in a namespace of its own; then the CPU time of a GET without any
# network; then the hit rate at equal memory (both gnomon-study). The ratios count; the bare numbers
# are this machine's.
#
#   BENCH_ROUNDS=5 BENCH_SECONDS=5 scripts/bench.sh [speed|offline|hitrate]...      default: all
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/provision.sh
cargo build --release --workspace --bins -q
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
need_netns
host=""
netns host
rounds=${BENCH_ROUNDS:-5}
seconds=${BENCH_SECONDS:-5}
[ "$#" -gt 0 ] || set -- speed offline hitrate

# tps PORT ARGS...: memcaslap's figure.
tps() {
  local port=$1
  shift
  in_ns "$host" timeout 120 memcaslap -s "127.0.0.1:$port" -T 1 -t "${seconds}s" "$@" |
    sed -n 's/.*TPS: \([0-9]*\).*/\1/p'
}

part_speed() {
  ip netns exec "$host" memcached -u nobody -l 127.0.0.1 -p 11311 -U 11311 -t 1 >"$scratch/memcached.log" 2>&1 &
  undo stop_pid "$!"
  server_start "$host" -p 11411 -U 11411
  server_wait "gnomon answers" in_ns "$host" "$memc" wait 127.0.0.1:11411 1
  wait_for 10 in_ns "$host" "$memc" wait 127.0.0.1:11311 1

  echo "workload                     memcached      gnomon   ratio (median of $rounds, spread)"
  while IFS='|' read -r name args; do
    : >"$scratch/ratios"
    for ((round = 0; round < rounds; round++)); do
      # Alternately, so that whatever else the machine does falls on both.
      # shellcheck disable=SC2086 # the arguments are words
      printf '%s %s\n' "$(tps 11311 $args)" "$(tps 11411 $args)" >>"$scratch/ratios"
    done
    python3 - "$name" "$scratch/ratios" <<'MEDIANS'
import statistics, sys
name, path = sys.argv[1:]
pairs = [tuple(map(int, line.split())) for line in open(path)]
ratios = sorted(g / m for m, g in pairs)
m, g = (statistics.median(side) for side in zip(*pairs))
print(f"{name:26} {m:11,.0f} {g:11,.0f}   {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
MEDIANS
  done <<WORKLOADS
UDP, 8 connections|-U -c 8
TCP, 8 connections|-c 8
TCP, 64 connections|-c 64
WORKLOADS
}

part_offline() {
  in_ns "$host" target/release/gnomon-study offline --items "${BENCH_ITEMS:-1000000}" --rounds "$rounds"
}

# Servers of its own, afresh for each trace.
part_hitrate() {
  in_ns "$host" target/release/gnomon-study hitrate --requests "${BENCH_REQUESTS:-20000000}" \
    --server "memcached=memcached -u nobody -l 127.0.0.1 -p {port} -m {memory} -t 2" \
    --server "gnomon=$gnomon serve -p {port} -U 0 -m {memory} -t 2"
}

for part in "$@"; do
  "part_$part"
  echo
done
