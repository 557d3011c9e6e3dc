#!/usr/bin/env bash
# gnomon beside memcached, in one run, four ways. First the same client and the same requests over
# kernel sockets on loopback, in a namespace of its own: memcaslap's mix, then SET and GET over TCP,
# pipelined and not, with 8 connections and among as many as the limit on open files allows (up to
# 10,000). Then the CPU time of a GET without any network, and the hit rate at equal memory. All but
# the first are gnomon-study's. The ratios count; the bare numbers are this machine's.
#
#   BENCH_ROUNDS=5 BENCH_SECONDS=5 scripts/bench.sh [speed|tcp|offline|hitrate]...  default: all
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
[ "$#" -gt 0 ] || set -- speed tcp offline hitrate

# cpu_ticks PID: CPU time that the process has used, user and system, in hundredths of a second.
cpu_ticks() {
  local stat
  stat=$(cat "/proc/$1/stat")
  # shellcheck disable=SC2086 # the fields are words
  set -- ${stat##*) }
  echo $((${12} + ${13}))
}

# slap_sample PORT PID ARGS...: memcaslap's requests per second, and the microseconds of CPU time
# that the server spent on each.
slap_sample() {
  local port=$1 pid=$2 ticks
  shift 2
  ticks=$(cpu_ticks "$pid")
  in_ns "$host" timeout 120 memcaslap -s "127.0.0.1:$port" -T 1 -t "${seconds}s" "$@" >"$scratch/slap"
  ticks=$(($(cpu_ticks "$pid") - ticks))
  awk -v us="${ticks}0000" '/^cmd_[gs]et:/ { n += $2 } match($0, /TPS: [0-9]+/) { tps = substr($0, RSTART + 5, RLENGTH - 5) }
    END { print tps, us / n }' "$scratch/slap"
}

part_speed() {
  ip netns exec "$host" memcached -u nobody -l 127.0.0.1 -p 11311 -U 11311 -t 1 >"$scratch/memcached.log" 2>&1 &
  local memcached_pid=$!
  undo stop_pid "$memcached_pid"
  server_start "$host" -p 11411 -U 11411 -t 1
  server_wait "gnomon answers" in_ns "$host" "$memc" wait 127.0.0.1:11411 1
  wait_for 10 in_ns "$host" "$memc" wait 127.0.0.1:11311 1

  echo "workload                     memcached      gnomon   ratio (median of $rounds, spread)    CPU us per request, ratio"
  while IFS='|' read -r name args; do
    : >"$scratch/ratios"
    for ((round = 0; round < rounds; round++)); do
      # Alternately, so that whatever else the machine does falls on both.
      # shellcheck disable=SC2086 # the arguments are words
      echo "$(slap_sample 11311 "$memcached_pid" $args) $(slap_sample 11411 "$server_pid" $args)" >>"$scratch/ratios"
    done
    python3 - "$name" "$scratch/ratios" <<'MEDIANS'
import statistics, sys
name, path = sys.argv[1:]
rounds = [tuple(map(float, line.split())) for line in open(path)]
m, m_us, g, g_us = (statistics.median(side) for side in zip(*rounds))
ratios = sorted(g / m for m, _, g, _ in rounds)
spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
print(f"{name:26} {m:11,.0f} {g:11,.0f}   {spread:35} {m_us:.1f} {g_us:.1f} {g_us / m_us:.2f}")
MEDIANS
  done <<WORKLOADS
UDP, 8 connections|-U -c 8
TCP, 8 connections|-c 8
TCP, 64 connections|-c 64
WORKLOADS
}

# tcp_study ARGS...: both servers, one TCP thread each.
tcp_study() {
  in_ns "$host" target/release/gnomon-study tcp --rounds "$((rounds * 5))" --milliseconds "$((seconds * 100))" \
    --server "memcached=memcached -u nobody -l 127.0.0.1 -p {port} -U 0 -m {memory} -t 1 -c 11000" \
    --server "gnomon=$gnomon serve -p {port} -U 0 -m {memory} -t 1 -c 11000" "$@"
}

part_tcp() {
  tcp_study
  echo
  # The client holds the connections to both servers.
  local idle=$(($(ulimit -n) / 2 - 100))
  tcp_study --verb get --idle "$((idle < 10000 ? idle : 10000))"
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
