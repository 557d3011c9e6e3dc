#!/usr/bin/env bash
# gnomon beside the commit before, the machine's memory, and memcached, in one run. The ratios count;
# the bare numbers are this machine's.
#
#   scripts/bench.sh [PART...]        default: ratios
#
# `ratios` takes less than five minutes, building aside: what a GET takes on the whole path, as a
# share of the random lines that the memory gives and of memcached's CPU time, of this commit and of
# the one before it, alternately. The commit before is built once, in target/bench-prev.
#   BENCH_AGAINST=COMMIT  instead of the commit before
# The others take longer. `speed`: the same client and the same requests over kernel sockets on
# loopback, in a namespace of its own: memcaslap's mix. `tcp`: SET and GET over TCP, pipelined and not,
# with 8 connections and among as many as the limit on open files allows (up to 10,000). `wire`: the same over DPDK's
# net_tap, af_packet and memif. `hitrate`: hits at equal memory. `papers`: every command of docs/papers.md at full
# size, into BENCH_OUT (default: target/papers).
#   BENCH_ROUNDS=5 BENCH_SECONDS=5
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/provision.sh
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
release_build
study=target/release/gnomon-study
out=${BENCH_OUT:-target/study}
rounds=${BENCH_ROUNDS:-5}
seconds=${BENCH_SECONDS:-5}
# With one TCP thread.
memcached_tcp="memcached=memcached -u nobody -l {address} -p {port} -U 0 -m {memory} -t 1 -c 11000"
[ "$#" -gt 0 ] || set -- ratios

# own_namespace: a namespace for servers and clients, once.
host=""
own_namespace() {
  [ -z "$host" ] || return 0
  need_netns
  netns host
}

# build_previous: builds the study of another commit, unless it is there, and sets $previous to it.
build_previous() {
  local commit cache=target/bench-prev
  commit=$(git rev-parse --verify --quiet "${BENCH_AGAINST:-HEAD^}^{commit}") || return 1
  previous=$PWD/$cache/gnomon-study-$commit
  [ ! -x "$previous" ] || return 0
  echo "building ${commit:0:12}, once: some minutes, not counted"
  mkdir -p "$cache"
  git worktree prune
  git worktree add --quiet --detach --force "$cache/source" "$commit"
  undo git worktree remove --force "$cache/source"
  CARGO_TARGET_DIR=$PWD/$cache/target cargo build --release -q -p tools --bin gnomon-study \
    --manifest-path "$cache/source/Cargo.toml" || return 1
  cp "$cache/target/release/gnomon-study" "$previous"
  # The last few are kept.
  find "$cache" -maxdepth 1 -name 'gnomon-study-*' -printf '%T@ %p\n' | sort -rn | tail -n +6 | cut -d' ' -f2- |
    xargs -r rm -f
}

part_ratios() {
  local dir=$scratch/ratios began round previous="" ask
  if ! build_previous; then
    echo "the commit before cannot be had: this one alone"
    previous=""
  elif ! "$previous" offline --help 2>/dev/null | grep -q -- --path-only; then
    echo "the study of the commit before cannot be asked for this: this one alone"
    previous=""
  fi
  began=$SECONDS
  ask=(offline --path-only --rounds 1 --items "${BENCH_ITEMS:-1000000}" --requests 2000000)
  for ((round = 0; round < rounds; round++)); do
    # Alternately, so that whatever else the machine does falls on both; memcached once.
    "$study" "${ask[@]}" --memcached-requests $((round == 0 ? 200000 : 0)) --out "$dir/this-$round" >/dev/null 2>&1
    [ -z "$previous" ] ||
      "$previous" "${ask[@]}" --memcached-requests 0 --out "$dir/previous-$round" >/dev/null 2>&1
  done
  python3 scripts/bench_ratios.py "$dir"
  # The worker's part of a request over TCP, and memcached's over kernel sockets.
  "$study" tcp --through memory --connections 64,1000 --key-size 16 --rounds "$rounds" --milliseconds 200 \
    --out "$dir/tcp" --server "$memcached_tcp" 2>/dev/null | grep -v '^figures'
  echo "took $((SECONDS - began)) s"
}

# Every study at full size.
part_papers() {
  scripts/papers.py "$study" "${BENCH_OUT:-target/papers}"
}

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
  own_namespace
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
  own_namespace
  in_ns "$host" "$study" tcp --out "$out" --rounds "$((rounds * 5))" --milliseconds "$((seconds * 100))" \
    --server "$memcached_tcp" \
    --server "gnomon=$gnomon serve -p {port} -U 0 -m {memory} -t 1 -c 11000" "$@"
}

part_tcp() {
  tcp_study
  echo
  # The client holds the connections to both servers.
  local idle=$(($(ulimit -n) / 2 - 100))
  tcp_study --verb get --idle "$((idle < 10000 ? idle : 10000))"
}

# The same over wires: gnomon by its workers, and by the kernel behind the exception path, and memcached behind a veth
# cable. The client has the kernel's TCP.
part_wire() {
  need_netns
  local kind
  for kind in net_tap af_packet memif; do
    echo "-- $kind"
    "$study" tcp --through "$kind" --gnomon "$gnomon" --connections "${BENCH_CONNECTIONS:-32}" --key-size 16 \
      --rounds "$rounds" --milliseconds "$((seconds * 100))" --server "$memcached_tcp" --out "$out/$kind"
  done
}

# Servers of its own, afresh for each trace.
part_hitrate() {
  own_namespace
  in_ns "$host" "$study" hitrate-live --out "$out" --requests "${BENCH_REQUESTS:-20000000}" \
    --server "memcached=memcached -u nobody -l 127.0.0.1 -p {port} -m {memory} -t 2" \
    --server "gnomon=$gnomon serve -p {port} -U 0 -m {memory} -t 2"
}

for part in "$@"; do
  "part_$part"
  echo
done
