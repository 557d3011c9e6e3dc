#!/usr/bin/env bash
# The appliance at one end of a veth cable through DPDK's af_xdp: one queue, one worker.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
need_netns
# AF_XDP is 44, which Python does not name.
if ! why=$(python3 -c 'import socket; socket.socket(44, socket.SOCK_RAW)' 2>&1); then
  skip "$(basename "$0")" "no AF_XDP sockets here: ${why##*$'\n'}"
  totals
  exit
fi

# program: whether wire0 has an XDP program.
program() {
  ip -n "$server" -d link show wire0 | grep -q prog/xdp
}
no_program() {
  ! program
}

wire_up af_xdp --metrics "unix:$scratch/metrics.sock"
check "an XDP program takes the frames" program
wire_checks "$client" "$device"
own_capture "$client" "$device" "$scratch/metrics.sock"
server_stop
check "the interface is the kernel's again" no_program

# The program of one that was killed is still there, and serves the next.
again=(--port "net_af_xdp0,iface=wire0" --ip "$v4/24" --cores "${cpus[0]}")
server_start "$server" "${again[@]}"
server_wait "serves again" in_ns "$client" "$memc" wait "$v4:11211" 1
kill -KILL "$server_pid"
check "it is killed" wait_for 10 gone "$server_pid"
check "its XDP program stays" program
server_start "$server" "${again[@]}"
server_wait "serves after that" in_ns "$client" "$memc" wait "$v4:11211" 1
server_stop
check "the interface is the kernel's again after that" no_program

# Without the right to load the program it says what it takes.
status=0
in_ns "$server" setpriv --bounding-set=-sys_admin "$gnomon" serve "${again[@]}" >"$scratch/refused" 2>&1 || status=$?
check "without CAP_SYS_ADMIN it does not start" test "$status" -eq 1
check "and says so" grep -q 'set up a receive queue.*CAP_SYS_ADMIN' "$scratch/refused"
totals
