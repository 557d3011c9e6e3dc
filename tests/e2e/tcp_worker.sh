#!/usr/bin/env bash
# TCP served by the workers: real client programs and libraries, with the kernel's TCP at the other end
# of a wire, over DPDK's net_tap, af_packet, af_xdp and memif.
#
#   tests/e2e/tcp_worker.sh [--whole] [net_tap] [af_packet] [af_xdp] [memif]     default: the first two
#
# --whole: all that kernel sockets are asked, on each: every battery, edges over IPv4 and IPv6, 5,000 random
# conversations, 20 contended histories; then policy and drills, by the kernel.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/venv.sh
. tests/e2e/venv.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
batteries=tests/e2e/clients
crate=target/clients/cargo
conversations=500 histories=3 whole=no
if [ "${1:-}" = --whole ]; then
  conversations=5000 histories=20 whole=yes
  shift
fi
[ "$#" -gt 0 ] || set -- net_tap af_packet
need_netns
check "the libraries in Python" make_venv

# battery NAME PROGRAM ARGS...: in the client's namespace. None takes this long.
battery() {
  local name=$1
  shift
  counted in_ns "$client" timeout --foreground 240 "$1" "$v4:11211" --label "$kind, $name: " "${@:2}"
}

# clients: each client in turn.
clients() {
  local name
  for name in pymemcache python_memcached pylibmc bmemcached aiomcache; do
    counted in_ns "$client" timeout --foreground 240 \
      "$venv/bin/python" -B "$batteries/${name}_battery.py" "$v4:11211" --label "$kind, $name: "
  done
  battery libmemcached "$batteries/libmemcached_tools.sh"
  slap "$kind, memcaslap over TCP: no wrong value" "$client" counted -s "$v4:11211" -T 1 -c 16 -t 3s
  slap "$kind, memcaslap -B -d 10 over TCP" "$client" counted -s "$v4:11211" -B -T 1 -c 16 -t 2s -d 10
  [ "$whole" = yes ] || return 0
  battery Cache::Memcached::Fast "$batteries/cache_memcached_fast.pl"
  battery Dalli "$batteries/dalli.rb"
  check "the crate's battery" cargo build -q --locked \
    --manifest-path "$batteries/memcache_crate/Cargo.toml" --target-dir "$crate"
  battery crate "$crate/debug/memcache-battery"
  battery memcached-tool "$batteries/memcached_tool.sh"
}

# edges: over both IP versions, large values among them.
edges() {
  local without=()
  # The driver lets the kernel put IPv4 fragments together before it reads them.
  [ "$kind" != af_packet ] || without=(--without "a request longer than a packet slot is refused in words")
  counted in_ns "$client" tests/e2e/edges.py "$v4:11211" "$v4:11211" --source 10.77.0.2 \
    --label "$kind, IPv4: " "${without[@]}"
  counted in_ns "$client" tests/e2e/edges.py "[$v6]:11211" "[$v6]:11211" --source fd77::2 --label "$kind, IPv6: "
}

# conversations: the same as the genuine server says.
conversations() {
  memcached_start "$client" -m 512 -t 1
  counted in_ns "$client" tests/e2e/differential.py "$genuine" "$v4:11211" --count "$conversations"
  stop_pid "$memcached_pid"
}

# histories: commands that overlap take effect one at a time.
histories() {
  local log=$scratch/linear
  if in_ns "$client" timeout 500 "${gnomon%/*}/gnomon-linear" --server "$v4:11211" --histories "$histories" \
    >"$log" 2>&1; then
    ok "$kind, overlapping commands: $(tail -n 1 "$log")"
  else
    not_ok "$kind, overlapping commands"
    sed 's/^/        | /' "$log" | tail -n 60
  fi
}

for kind in "$@"; do
  wire_up "$kind" --tcp worker -m 512
  clients
  edges
  if [ "$whole" = yes ] || [ "$kind" = af_packet ]; then
    conversations
    histories
  fi
  server_stop
  [ "$kind" != af_packet ] || counted in_ns "$client" tests/e2e/tcp_served.py "$server"
done
if [ "$whole" = yes ]; then
  GNOMON_TCP=kernel counted tests/e2e/policy.sh
  GNOMON_TCP=kernel counted tests/e2e/drills.sh wire
fi
totals
