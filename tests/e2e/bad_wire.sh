#!/usr/bin/env bash
# TCP over a bad cable: 1 % of the frames lost, 5 % overtaken, some twice, some with a bit turned, in both
# directions. Values go both ways and are compared byte for byte, one connection and several; beside it the same
# over the kernel's TCP at the server's end.
#
#   BAD_WIRE_MB=1000 tests/e2e/bad_wire.sh      each way; default: 4
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
megabytes=${BAD_WIRE_MB:-4}
faults=(10000 50000 5000 1000)
need_netns
[ -x target/release/examples/bad_wire ] || check "the bad cable" cargo build -q --release -p driver-shim --example bad_wire

# cable: left0 in the client's namespace, right0 in the server's.
cable() {
  client="" server=""
  netns "client$RANDOM" client
  netns "server$RANDOM" server
  mkfifo "$scratch/hold$server"
  target/release/examples/bad_wire left0 right0 "${faults[@]}" <"$scratch/hold$server" >"$scratch/cable" &
  exec {hold}>"$scratch/hold$server"
  check "there is a cable" wait_for 10 grep -q ready "$scratch/cable"
  ip link set left0 netns "$client"
  ip link set right0 netns "$server"
  in_ns "$server" sh -c "echo 1 >/proc/sys/net/ipv6/conf/right0/disable_ipv6"
  ip -n "$client" link set left0 up
  ip -n "$server" link set right0 up
  client_addresses "$client" left0
}
cable_cut() {
  exec {hold}>&-
  check "the cable was bad" wait_for 10 grep -q "right0 to left0" "$scratch/cable"
  sed 's/^/note    /' "$scratch/cable"
  ip netns del "$client"
  ip netns del "$server"
}

# exact WHO CONNECTIONS: values both ways.
exact() {
  counted in_ns "$client" timeout 3600 tests/e2e/exact.py "$v4:11211" "$2" "$megabytes" \
    "$1, $2 connections: $megabytes MB each way, byte for byte"
}

cable
ip -n "$server" addr add "$v4/24" dev right0
server_start "$server" -l "$v4" -U 0 -m 256
server_wait "serves on kernel sockets" in_ns "$client" "$memc" tcp "$v4:11211" version
for connections in 1 4; do exact "the kernel's TCP" "$connections"; done
server_stop
cable_cut

cable
in_ns "$server" nft add table netdev gnomon
in_ns "$server" nft add chain netdev gnomon ingress \
  '{ type filter hook ingress device right0 priority 0; policy drop; }'
server_start "$server" --port net_af_packet0,iface=right0 --ip "$v4/24" --cores "${cpus[0]}" --tcp worker -m 256
server_wait "serves over af_packet" in_ns "$client" "$memc" tcp "$v4:11211" version
for connections in 1 4; do exact "the worker's TCP" "$connections"; done
server_stop
cable_cut
totals
