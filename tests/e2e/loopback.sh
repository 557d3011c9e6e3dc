#!/usr/bin/env bash
# `gnomon serve` as anybody starts it: no flags, kernel sockets, loopback, the usual clients.
# In a namespace, so that port 11211 is free whatever else the machine runs.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
need_netns
host=""
netns host

# The checks themselves first, against the genuine server: they must be true of it.
genuine=127.0.0.1:11311
# genuine_start ARGS...: sets $memcached_pid.
genuine_start() {
  ip netns exec "$host" memcached -u nobody -l 127.0.0.1 -p 11311 -U 11311 -t 2 "$@" >"$scratch/memcached.log" 2>&1 &
  memcached_pid=$!
  undo stop_pid "$memcached_pid"
  check "memcached answers" in_ns "$host" "$memc" wait "$genuine" 10
}
genuine_start
counted in_ns "$host" tests/e2e/edges.py "$genuine" "$genuine" --memcached --label "memcached: "
counted in_ns "$host" tests/e2e/filling.py evict "$genuine" "$genuine" 64 --label "memcached: "
stop_pid "$memcached_pid"

here=127.0.0.1:11211
server_start "$host"
server_wait "serves without a flag" in_ns "$host" "$memc" wait "$here" 1
counted in_ns "$host" tests/e2e/edges.py "$here" "$here" --label "loopback: "

head -c 200000 /dev/urandom >"$scratch/sent"
check "memccp over TCP" in_ns "$host" memccp --servers="$here" "$scratch/sent"
# memccp names the item after the file; memccat puts a line end after it.
in_ns "$host" memccat --servers="$here" sent >"$scratch/received" || true
echo >>"$scratch/sent"
check "memccat gives back what memccp stored" cmp "$scratch/sent" "$scratch/received"

head -c 200000 /dev/urandom >"$scratch/binary"
check "memccp --binary" in_ns "$host" memccp --binary --servers="$here" "$scratch/binary"
in_ns "$host" memccat --binary --servers="$here" binary >"$scratch/received" || true
echo >>"$scratch/binary"
check "memccat --binary gives it back" cmp "$scratch/binary" "$scratch/received"
check "memctouch --binary" in_ns "$host" memctouch --binary --servers="$here" --expire=100 binary
check "memcexist --binary" in_ns "$host" memcexist --binary --servers="$here" binary
check "memcrm --binary" in_ns "$host" memcrm --binary --servers="$here" binary
check "memcflush --binary" in_ns "$host" memcflush --binary --servers="$here"
check "memcstat --binary" in_ns "$host" memcstat --binary --servers="$here"
check "memccapable, ASCII" in_ns "$host" memccapable -a -h 127.0.0.1 -p 11211
check "memccapable, binary" in_ns "$host" memccapable -b -h 127.0.0.1 -p 11211
server_stop

# Both with room for all that is stored: what is evicted when is each server's own, and memcaslap
# takes an evicted item for a lost one.
genuine_start -m 512
server_start "$host" -m 512
server_wait "starts beside memcached" in_ns "$host" "$memc" wait "$here" 1
counted in_ns "$host" tests/e2e/differential.py "$genuine" "$here"
counted in_ns "$host" tests/e2e/differential_binary.py "$genuine" "$here"
stop_pid "$memcached_pid"
slap "memcaslap -U: no drop, no disorder, no wrong value" "$host" strict -s "$here" -U -T 1 -c 8 -t 3s
slap "memcaslap -U -d 10: multi-get over UDP" "$host" strict -s "$here" -U -T 1 -c 8 -t 1s -d 10
slap "memcaslap -a -d 10: set by TCP, multi-get by UDP" "$host" strict -s "$here" -a -T 1 -c 8 -t 1s -d 10
slap "memcaslap over TCP" "$host" strict -s "$here" -T 1 -c 8 -t 1s
slap "memcaslap -B: binary" "$host" strict -s "$here" -B -T 1 -c 8 -t 1s
slap "memcaslap -B -d 10: binary multi-get" "$host" strict -s "$here" -B -T 1 -c 8 -t 1s -d 10
server_stop

server_start "$host" -m 64
server_wait "starts again on the same ports" in_ns "$host" "$memc" wait "$here" 1
counted in_ns "$host" tests/e2e/filling.py evict "$here" "$here" 64
server_stop

server_start "$host" -m 64 -M
server_wait "starts with -M" in_ns "$host" "$memc" wait "$here" 1
counted in_ns "$host" tests/e2e/filling.py refuse "$here" "$here" 64
server_stop
totals
