#!/usr/bin/env bash
# `gnomon serve` as anybody starts it: no flags, kernel sockets, loopback.
# In a namespace, so that port 11211 is free whatever else the machine runs.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
need_netns
host=""
netns host

# The checks themselves first, against the genuine server: they must be true of it.
memcached_start "$host"
counted in_ns "$host" tests/e2e/edges.py "$genuine" "$genuine" --memcached --label "memcached: "
counted in_ns "$host" tests/e2e/filling.py evict "$genuine" "$genuine" 64 --label "memcached: "
stop_pid "$memcached_pid"

here=127.0.0.1:11211
server_start "$host"
server_wait "serves without a flag" in_ns "$host" "$memc" wait "$here" 1
counted in_ns "$host" tests/e2e/edges.py "$here" "$here" --label "loopback: "
server_stop

# Both with room for all that is stored: what is evicted when is each server's own. With one thread
# memcached answers datagrams in their order.
memcached_start "$host" -m 512 -t 1
server_start "$host" -m 512
server_wait "starts beside memcached" in_ns "$host" "$memc" wait "$here" 1
counted in_ns "$host" tests/e2e/stats_parity.py "$genuine" "$here"
counted in_ns "$host" tests/e2e/differential.py "$genuine" "$here"
stop_pid "$memcached_pid"
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
