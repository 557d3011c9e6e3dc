#!/usr/bin/env bash
# The appliance behind DPDK's net_tap, two queues, two workers: the kernel's end of the TAP device
# is moved into the client's namespace and becomes the client's NIC. TCP goes through the exception path.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
need_netns
wire_up net_tap --tcp kernel
wire_checks "$client" "$device"
server_stop
totals
