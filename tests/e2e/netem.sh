#!/usr/bin/env bash
# TCP over a network of somebody else's making: the client is Debian's kernel in a QEMU guest, and its
# sch_netem delays, loses, overtakes, copies and spoils in both directions. Values go both ways and are compared byte for
# byte; the server is at the other end of the guest's NIC, first with the kernel's TCP, then with the workers'.
#
#   NETEM_MB=64 tests/e2e/netem.sh      each way; default: 4
#
# The guest's kernel is fetched from the mirror that apt has, once.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
# shellcheck source=tests/boot/qemu.sh
. tests/boot/qemu.sh
megabytes=${NETEM_MB:-4}
faults="delay 200us reorder 5% loss 1% duplicate 0.5% corrupt 0.1%"
need_qemu

# guest_made: the guest's kernel and its first file system, with the modules that it needs.
guest_made() {
  local cache=target/netem root=$scratch/root kernel modules module
  kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
  kernel=${kernel#linux-image-}
  if [ ! -e "$cache/$kernel/modules.dep" ]; then
    mkdir -p "$cache"
    (cd "$scratch" && apt-get download "linux-image-$kernel" && dpkg-deb -x linux-image-*.deb fetched)
    busybox depmod -b "$scratch/fetched" "$kernel"
    rm -rf "${cache:?}/$kernel"
    mv "$scratch/fetched/lib/modules/$kernel" "$cache/$kernel"
    mv "$scratch/fetched/boot/vmlinuz-$kernel" "$cache/$kernel/vmlinuz"
  fi
  vmlinuz=$cache/$kernel/vmlinuz
  modules="virtio_pci virtio_net 9p 9pnet_virtio sch_netem ifb act_mirred cls_matchall sch_ingress"
  mkdir -p "$root"/{bin,proc,sys,dev,host} "$root/lib/modules/$kernel"
  cp "$(command -v busybox)" "$root/bin/busybox"
  for module in $modules; do
    grep "/$module\.ko:" "$cache/$kernel/modules.dep"
  done >"$root/lib/modules/$kernel/modules.dep"
  tr -d : <"$root/lib/modules/$kernel/modules.dep" | tr ' ' '\n' | sort -u |
    (cd "$cache/$kernel" && xargs cp --parents -t "$root/lib/modules/$kernel")
  cat >"$root/init" <<INIT
#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
modprobe -a $modules
mount -t 9p -o trans=virtio,version=9p2000.L,msize=131072,ro host /host
for there in proc dev sys; do mount -o bind /\$there /host/\$there; done
# By their paths: what busybox has itself it would take instead.
here() { chroot /host "\$@"; }
ip addr add 10.77.0.2/24 dev eth0
here /usr/sbin/ethtool -K eth0 gso off gro off tso off
ip link set lo up
ip link set eth0 up
ip link set ifb0 up
here /usr/sbin/tc qdisc add dev eth0 ingress
here /usr/sbin/tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0
for device in eth0 ifb0; do here /usr/sbin/tc qdisc add dev \$device root netem $faults; done
word() { sed -n "s/.* \$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
for connections in 1 4; do
  here python3 -B "$PWD/tests/e2e/exact.py" $v4:11211 \$connections $megabytes \
    "\$(word who)'s TCP, a guest behind sch_netem, \$connections connections: $megabytes MB each way, byte for byte"
done
here /usr/sbin/tc -s qdisc show dev ifb0
poweroff -f
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | busybox cpio -o -H newc) | gzip -1 >"$scratch/initrd"
}

# guest_asks WHO: boots the guest, which does what it has to and ends.
guest_asks() {
  local status=0
  in_ns "$server" timeout 1800 qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none \
    -machine q35 -accel tcg,thread=multi -cpu Westmere -smp 1 -m 512 -kernel "$vmlinuz" -initrd "$scratch/initrd" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off who=$1" \
    -chardev "file,id=console,path=$scratch/console" -serial chardev:console \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on \
    -netdev tap,id=cable,ifname=gtap0,script=no,downscript=no \
    -device "virtio-net-pci,netdev=cable,mac=$nic_mac,csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,host_tso4=off,host_tso6=off" \
    >"$scratch/qemu.log" 2>&1 || status=$?
  tr -d '\r' <"$scratch/console" >"$scratch/said"
  check "the guest ends" test "$status" -eq 0
  counted grep -aE '^(ok|FAILED) ' "$scratch/said"
  check "it was asked twice" test "$(grep -acE "^ok .*$1's TCP" "$scratch/said")" -eq 2
  check "netem lost something" grep -qaE 'dropped [1-9]' "$scratch/said"
  [ "$failed" -eq 0 ] || tail -n 40 "$scratch/said" | sed 's/^/        | /'
}

check "the guest is made" guest_made
server=""
netns "server$RANDOM" server
ip -n "$server" tuntap add dev gtap0 mode tap
in_ns "$server" sh -c "echo 1 >/proc/sys/net/ipv6/conf/gtap0/disable_ipv6"
ip -n "$server" link set gtap0 up

ip -n "$server" addr add "$v4/24" dev gtap0
server_start "$server" -l "$v4" -U 0 -m 256
server_wait "serves on kernel sockets" grep -qi ready "$server_log"
guest_asks kernel
server_stop
ip -n "$server" addr del "$v4/24" dev gtap0

in_ns "$server" nft add table netdev gnomon
in_ns "$server" nft add chain netdev gnomon ingress \
  '{ type filter hook ingress device gtap0 priority 0; policy drop; }'
server_start "$server" --port net_af_packet0,iface=gtap0 --ip "$v4/24" --cores "${cpus[0]}" --tcp worker -m 256
server_wait "serves over af_packet" grep -qi ready "$server_log"
guest_asks worker
server_stop
totals
