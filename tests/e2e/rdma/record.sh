#!/usr/bin/env bash
# Records READs between two genuine endpoints, Debian's rdma_rxe in two QEMU guests on a bridge, over IPv4 and IPv6 and
# with two path MTUs: the frames that dataplane/tests/rxe.rs answers.
#
#   tests/e2e/rdma/record.sh FILE      a pcap
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
# shellcheck source=tests/boot/qemu.sh
. tests/boot/qemu.sh
# shellcheck source=tests/e2e/guest.sh
. tests/e2e/guest.sh
file=$1
need_qemu

what_it_does() {
  cat <<INIT
host=1
[ "\$(word who)" = responder ] || host=2
ip addr add 10.77.0.\$host/24 dev eth0
here /usr/bin/ip addr add fd77::\$host/64 dev eth0 nodad
here /usr/sbin/ethtool -K eth0 gso off gro off tso off
ip link set eth0 up
here /usr/bin/rdma link add rxe0 type rxe netdev eth0
sleep 1
[ \$host = 2 ] || here "$scratch/responder" 11211
for mtu in 256 1024; do
  here "$scratch/client" $v4 11211 pair \$mtu
  here "$scratch/client" $v6 11211 pair \$mtu
done
INIT
}

for program in client responder; do
  check "the $program is made" cc -O2 -Wall -Wextra -Werror -o "$scratch/$program" "tests/e2e/rdma/$program.c" -libverbs -lz
done
what_it_does >"$scratch/what"
modules="virtio_pci virtio_net 9p 9pnet_virtio crc32_generic ib_uverbs rdma_rxe"
check "the guest is made" guest_made "$modules" <"$scratch/what"
server=""
netns "server$RANDOM" server
ip -n "$server" link add bridge type bridge
ip -n "$server" link set bridge up
for tap in gtap0 gtap1; do
  ip -n "$server" tuntap add dev "$tap" mode tap
  ip -n "$server" link set "$tap" master bridge up
done
ip netns exec "$server" dumpcap -q -P -f 'udp port 4791' -i gtap0 -w "$scratch/rxe.pcap" >"$scratch/dumpcap.log" 2>&1 &
capture_pid=$!
undo stop_pid "$capture_pid"
guest_runs responder 600 gtap1 02:00:00:00:77:02 &
responder_pid=$!
undo stop_pid "$responder_pid"
guest_asks requester 600
guest_told
[ "$failed" -eq 0 ] || sed 's/^/        | /' "$scratch/console-responder"
sleep 1
kill -INT "$capture_pid"
wait "$capture_pid" || true
[ "$failed" -gt 0 ] || cp "$scratch/rxe.pcap" "$file"
totals
