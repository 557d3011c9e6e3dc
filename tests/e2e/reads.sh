#!/usr/bin/env bash
# One-sided reads by a requester in user space, without a guest: the Rust client and gnomon-replay --rdma, through
# the kernel's UDP sockets over DPDK's net_tap, and through a DPDK port beside the kernel's (net_af_packet).
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
replay=${REPLAY:-target/release/gnomon-replay}
need_netns

# read_well FILE: READs answered the gets, and nothing was wrong or lost. Some may be torn by the sets among them.
read_well() {
  python3 - "$1" <<'WELL'
import json, sys
report = json.load(open(sys.argv[1]))
reads = report["reads"]
assert report["wrong"] == 0 and report["lost"] == 0 and report["skipped"] == 0, report
assert report["answered"] == report["sent"] == 20000 and report["misses"] == 0, report
assert reads["bad"] == 0 and reads["torn"] < 100, reads
assert reads["reopened"] == 0 and reads["asked"] <= 1000 + reads["torn"], reads
assert reads["reads"] >= report["gets"] - reads["asked"] > 10000, reads
print(reads)
WELL
}

# plays NAME ARGS...: 1,000 keys are set over TCP, then read, among sets of one in ten.
plays() {
  local name=$1
  shift
  check "gnomon-replay --rdma, $name" in_ns "$client" timeout 120 "$replay" --target "$v4:11211" --rdma --fill --workload ycsb-b \
    --keys 1000 --key-size 24 --value-size 1000 --requests 20000 --seed 7 --expect-hits --max-lost 0 --outstanding 32 \
    --json "$scratch/played.json" "$@"
  check "by READs, every value right, $name" read_well "$scratch/played.json"
}

if [ -e /usr/include/infiniband/verbs.h ]; then
  check "the shim's test is made" cc -O2 -Wall -Wextra -Werror -o "$scratch/gid" tests/e2e/rdma/gid_test.c -libverbs
  check "the GID of RoCE v2 is taken, on its port" "$scratch/gid"
fi
check "the Rust client is made" rust_client
for tcp in kernel worker; do
  wire_up net_tap --rdma --tcp "$tcp" --exception-rate 100000 -m 256
  counted in_ns "$client" "$scratch/rust-client" "$v4:11211" sockets
  plays "through sockets, TCP by the $tcp"
  if [ "$tcp" = worker ]; then
    mac=$(ip -n "$client" neigh show "$v4" | sed -n 's/.* lladdr \([^ ]*\).*/\1/p')
    plays "through a port" --rdma-port "net_af_packet0,iface=$device" --dst-mac "$mac"
  fi
  server_stop
done
totals
