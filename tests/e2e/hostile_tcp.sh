#!/usr/bin/env bash
# TCP served by a worker, and at the other end of a cable peers made with scapy: what a kernel's TCP never sends, over
# IPv4 and IPv6. Then a flood of SYNs, and clients that never read, beside honest ones.
#
#   tests/e2e/hostile_tcp.sh [--whole]
#
# --whole: a million SYNs and 10,000 clients, and honest ones keep nine tenths of their replies; without it fewer, and a
# tenth, because other programs run beside it.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/venv.sh
. tests/e2e/venv.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
syns=300000 unread=1000 share=0.1
[ "${1:-}" != --whole ] || syns=1000000 unread=10000 share=0.9
need_netns
check "the libraries in Python" make_venv
wire_up af_packet --tcp worker
counted in_ns "$client" "$venv/bin/python" -B tests/e2e/hostile_tcp.py "$v6" "$device" --label "IPv6: "
counted in_ns "$client" "$venv/bin/python" -B tests/e2e/hostile_tcp.py "$v4" "$device" --label "IPv4: " \
  --syns "$syns" --share "$share"
check "a client of the kernel's is served as before" in_ns "$client" "$memc" wait "$v4:11211" 5
server_stop
wire_up af_packet --tcp worker -c "$((unread + 200))"
counted in_ns "$client" tests/e2e/unread.py "$v4" "$server_pid" --clients "$unread" --share "$share"
server_stop
totals
