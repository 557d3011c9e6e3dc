#!/usr/bin/env bash
# One-sided reads, judged by somebody else's RDMA: Debian's kernel in a QEMU guest, its rdma_rxe and libibverbs, over
# a bridge and DPDK's net_tap; clients are in C and in Rust. First the queue pairs' connections are the kernel's TCP, then the workers'; over IPv4
# and IPv6. At last the guest's sch_netem loses, copies and overtakes beside a writer.
#
#   RDMA_READS=1000000 RDMA_SECONDS=3600 RDMA_FAULTS="delay 300us 200us loss 1%" tests/e2e/rdma.sh
#       the storm; default: 100000 READs, or as many as there is time for in 150 seconds, 10000 at least
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
reads=${RDMA_READS:-100000}
seconds=${RDMA_SECONDS:-150}
faults=${RDMA_FAULTS:-delay 200us reorder 5% loss 1% duplicate 0.5%}
need_qemu

# what_it_does: in the guest.
what_it_does() {
  cat <<INIT
ip addr add 10.77.0.2/24 dev eth0
here /usr/bin/ip addr add fd77::2/64 dev eth0 nodad
here /usr/sbin/ethtool -K eth0 gso off gro off tso off
ip link set lo up
ip link set eth0 up
ip link set ifb0 up
here /usr/bin/rdma link add rxe0 type rxe netdev eth0
sleep 1
here "$scratch/client" $v4 11211 check
here "$scratch/client" $v6 11211 check
here "$scratch/rust-client" $v4:11211 verbs
here "$scratch/rust-client" [$v6]:11211 verbs
if [ "\$(word who)" = worker ]; then
  here /usr/sbin/tc qdisc add dev eth0 ingress
  here /usr/sbin/tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0
  for device in eth0 ifb0; do here /usr/sbin/tc qdisc add dev \$device root netem $faults; done
  here "$scratch/client" $v4 11211 storm $reads $seconds
  here /usr/sbin/tc -s qdisc show dev ifb0
fi
INIT
}

modules="virtio_pci virtio_net 9p 9pnet_virtio crc32_generic ib_uverbs rdma_rxe sch_netem ifb act_mirred cls_matchall sch_ingress"
check "the Rust client is made" rust_client --features verbs
check "the client is made" cc -O2 -Wall -Wextra -Werror -o "$scratch/client" tests/e2e/rdma/client.c -libverbs -lz
what_it_does >"$scratch/what"
check "the guest is made" guest_made "$modules" <"$scratch/what"

for tcp in kernel worker; do
  server=""
  netns "server$RANDOM" server
  # The guest's cable and the kernel's end of the appliance's TAP device meet in a bridge.
  in_ns "$server" sh -c "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6"
  ip -n "$server" link add bridge type bridge
  ip -n "$server" tuntap add dev gtap0 mode tap
  ip -n "$server" link set gtap0 master bridge up
  ip -n "$server" link set bridge up
  in_ns "$server" sh -c "echo 0 >/proc/sys/net/ipv6/conf/default/disable_ipv6"
  server_start "$server" --port net_tap0,iface=atap0 --ip "$v4/24" --ip "$v6/64" --cores "${cpus[0]}" \
    --tcp "$tcp" --exception-rate 100000 --rdma -m 256
  server_wait "serves over net_tap, TCP by the $tcp" grep -qi ready "$server_log"
  ip -n "$server" link set atap0 address 02:00:00:00:77:02
  ip -n "$server" link set atap0 master bridge up
  # The storm would fill the disk.
  ip netns exec "$server" dumpcap -q -c 20000 -i gtap0 -w "$scratch/wire.pcapng" >"$scratch/dumpcap.log" 2>&1 &
  capture_pid=$!
  undo stop_pid "$capture_pid"
  guest_asks "$tcp" $((1200 + seconds))
  checks=38
  if [ "$tcp" = worker ]; then
    checks=39
    check "netem lost something" grep -qaE 'dropped [1-9]' "$scratch/said"
    check "what it lost was sent again" grep -qaE '^note +retries [1-9]' "$scratch/said"
  fi
  check "all was checked" test "$(grep -acE '^ok ' "$scratch/said")" -eq "$checks"
  guest_told
  kill -INT "$capture_pid" 2>/dev/null || true
  wait "$capture_pid" || true
  n=$(tshark -r "$scratch/wire.pcapng" -Y 'infiniband && udp.dstport == 4791' -T fields -e frame.number 2>/dev/null | wc -l)
  # Annex A17 has no UDP checksum, over IPv6 neither.
  check "Wireshark sees RDMA packets ($n)" test "$n" -gt 1000
  n=$(tshark -r "$scratch/wire.pcapng" -Y '(ip.src == 10.77.0.1 || ipv6.src == fd77::1) && udp.dstport == 4791 && (_ws.malformed || _ws.expert.severity == "Error" || ip.checksum.status == "Bad")' \
    -o ip.check_checksum:TRUE -o udp.ignore_ipv6_zero_checksum:TRUE -T fields -e frame.number 2>/dev/null | wc -l)
  check "and finds no fault with ours" test "$n" -eq 0
  [ -z "${KEEP:-}" ] || cp "$scratch/wire.pcapng" "$KEEP-$tcp"
  server_stop
done
totals
