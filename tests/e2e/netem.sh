#!/usr/bin/env bash
# TCP over a network of somebody else's making: the client is Debian's kernel in a QEMU guest, and its
# sch_netem delays, loses, overtakes, copies and spoils in both directions. Values go both ways and are compared byte for
# byte; the server is at the other end of the guest's NIC, first with the kernel's TCP, then with the workers'.
#
#   NETEM_MB=64 tests/e2e/netem.sh      each way; default: 4
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
# shellcheck source=tests/boot/qemu.sh
. tests/boot/qemu.sh
# shellcheck source=tests/e2e/guest.sh
. tests/e2e/guest.sh
megabytes=${NETEM_MB:-4}
faults="delay 200us reorder 5% loss 1% duplicate 0.5% corrupt 0.1%"
need_qemu

# what_it_does: in the guest.
what_it_does() {
  cat <<INIT
ip addr add 10.77.0.2/24 dev eth0
here /usr/sbin/ethtool -K eth0 gso off gro off tso off
ip link set lo up
ip link set eth0 up
ip link set ifb0 up
here /usr/sbin/tc qdisc add dev eth0 ingress
here /usr/sbin/tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0
for device in eth0 ifb0; do here /usr/sbin/tc qdisc add dev \$device root netem $faults; done
for connections in 1 4; do
  here python3 -B "$PWD/tests/e2e/exact.py" $v4:11211 \$connections $megabytes \
    "\$(word who)'s TCP, a guest behind sch_netem, \$connections connections: $megabytes MB each way, byte for byte"
done
here /usr/sbin/tc -s qdisc show dev ifb0
INIT
}

# asks WHO: has the guest ask, and judges what it said.
asks() {
  guest_asks "$1"
  check "it was asked twice" test "$(grep -acE "^ok .*$1's TCP" "$scratch/said")" -eq 2
  check "netem lost something" grep -qaE 'dropped [1-9]' "$scratch/said"
  guest_told
}

modules="virtio_pci virtio_net 9p 9pnet_virtio sch_netem ifb act_mirred cls_matchall sch_ingress"
what_it_does >"$scratch/what"
check "the guest is made" guest_made "$modules" <"$scratch/what"
server=""
netns "server$RANDOM" server
ip -n "$server" tuntap add dev gtap0 mode tap
in_ns "$server" sh -c "echo 1 >/proc/sys/net/ipv6/conf/gtap0/disable_ipv6"
ip -n "$server" link set gtap0 up

ip -n "$server" addr add "$v4/24" dev gtap0
server_start "$server" -l "$v4" -U 0 -m 256
server_wait "serves on kernel sockets" grep -qi ready "$server_log"
asks kernel
server_stop
ip -n "$server" addr del "$v4/24" dev gtap0

in_ns "$server" nft add table netdev gnomon
in_ns "$server" nft add chain netdev gnomon ingress \
  '{ type filter hook ingress device gtap0 priority 0; policy drop; }'
server_start "$server" --port net_af_packet0,iface=gtap0 --ip "$v4/24" --cores "${cpus[0]}" --tcp worker -m 256
server_wait "serves over af_packet" grep -qi ready "$server_log"
asks worker
server_stop
totals
