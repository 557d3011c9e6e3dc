#!/usr/bin/env bash
# The appliance at one end of a veth cable through DPDK's af_packet, two queues, two workers.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
need_netns
server="" client=""
netns server
netns client
veth_pair "$server" "$client"
client_addresses "$client" wire1
server_start "$server" --port "net_af_packet0,iface=wire0,qpairs=${#cpus[@]}" \
  --ip "$v4/24" --ip "$v6/64" --cores "$cores" --metrics "unix:$scratch/metrics.sock"
server_wait "serves over af_packet" in_ns "$client" "$memc" wait "$v4:11211" 1
# The driver lets the kernel put IPv4 fragments together before it reads them, and drops what then fits no
# slot.
wire_checks "$client" wire1 --without "a request longer than a packet slot is refused in words"
own_capture "$client" wire1 "$scratch/metrics.sock"
server_stop
totals
