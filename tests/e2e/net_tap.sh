#!/usr/bin/env bash
# The appliance behind DPDK's net_tap, two queues, two workers: the kernel's end of the TAP device
# is moved into the client's namespace and becomes the client's NIC.
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
server_start "$server" --port net_tap0,iface=gtap0 --ip "$v4/24" --ip "$v6/64" --cores "$cores"
server_wait "makes its TAP device" ip -n "$server" link show gtap0
# Ready, not merely there: the driver configures the device under the name that it gave it.
server_wait "is ready" grep -qi ready "$server_log"
ip -n "$server" link set gtap0 netns "$client"
# Both ends of a TAP device have one address until one of them takes another.
ip -n "$client" link set gtap0 address 02:00:00:00:77:02 up
client_addresses "$client" gtap0
server_wait "serves over net_tap" in_ns "$client" "$memc" wait "$v4:11211" 1
wire_checks "$client" gtap0
server_stop
totals
