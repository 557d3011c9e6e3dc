#!/usr/bin/env bash
# The appliance at one end of a veth cable through DPDK's af_packet, two queues, two workers.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
need_netns
wire_up af_packet --metrics "unix:$scratch/metrics.sock"
# The driver lets the kernel put IPv4 fragments together before it reads them, and drops what then fits no
# slot.
wire_checks "$client" "$device" --without "a request longer than a packet slot is refused in words"
own_capture "$client" "$device" "$scratch/metrics.sock"
server_stop
totals
