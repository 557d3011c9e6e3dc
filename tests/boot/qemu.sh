# Sourced after tests/e2e/lib.sh: a QEMU guest whose data NIC is a TAP device's other end.
# shellcheck shell=bash disable=SC2154 # scratch and image are the sourcing script's
# Software emulation only: a guest under KVM within a guest is not to be relied upon.

# What the service is told by the kernel's command line.
# shellcheck disable=SC2034 # the sourcing scripts use it
nic_address=0000:81:00.0
nic_mac=02:00:00:00:77:01

# need_qemu: ends the script, counted as skipped, where a guest or its cable cannot be made.
need_qemu() {
  local why="" probe="gnomon-$$-probe"
  need_netns
  command -v qemu-system-x86_64 >/dev/null || why="no qemu-system-x86_64"
  ip netns add "$probe"
  ip -n "$probe" tuntap add dev tap0 mode tap 2>"$scratch/tap" || why="no TAP device: $(cat "$scratch/tap")"
  ip netns del "$probe"
  if [ -n "$why" ]; then
    skip "$(basename "$0")" "$why"
    totals
    exit
  fi
}

# nic_queues NIC: over how many queues QEMU spreads what it receives.
nic_queues() {
  case $1 in
    virtio-net) echo 2 ;;
    *) echo 1 ;;
  esac
}

# nic_device NIC: how QEMU makes that model, behind a PCI Express port, so that it can be unplugged.
nic_device() {
  local place="id=nic,netdev=cable,mac=$nic_mac,bus=bay"
  case $1 in
    # It uses an IOMMU only when it must.
    virtio-net) echo "virtio-net-pci,disable-legacy=on,iommu_platform=on,mq=on,rss=on,$place" ;;
    *) echo "$1,$place" ;;
  esac
}

# guest_start NS NIC ARGS...: starts a guest with two NUMA nodes of a CPU and 1 GB each, an IOMMU, and a
# NIC of that model, on the second node and on gtap0 in the namespace. Sets $guest_pid, $guest_log (its
# console), $guest_shell and $guest_monitor. The processor is the least that DPDK takes: what others
# have more of is slow in software.
guest_start() {
  local ns=$1 nic=$2 cable=tap,id=cable,ifname=gtap0,script=no,downscript=no
  shift 2
  [ "$(nic_queues "$nic")" = 1 ] || cable+=,queues=$(nic_queues "$nic")
  guest_log=$scratch/console-$nic.log
  guest_shell=$scratch/shell-$nic.sock
  guest_monitor=$scratch/monitor-$nic.sock
  : >"$guest_log"
  ip netns exec "$ns" qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none \
    -machine q35,kernel-irqchip=off -accel tcg,thread=multi -cpu Westmere -smp 2 -m 2048 \
    -object memory-backend-ram,id=near,size=1024M -numa node,nodeid=0,cpus=0,memdev=near \
    -object memory-backend-ram,id=far,size=1024M -numa node,nodeid=1,cpus=1,memdev=far \
    -device intel-iommu,intremap=on,caching-mode=on \
    -drive "file=$image/gnomon.raw,format=raw,if=none,id=disk,snapshot=on" \
    -device virtio-blk-pci,drive=disk,bus=pcie.0 \
    -chardev "file,id=console,path=$guest_log" -serial chardev:console \
    -chardev "socket,id=shell,path=$guest_shell,server=on,wait=off" -serial chardev:shell \
    -qmp "unix:$guest_monitor,server=on,wait=off" \
    -netdev "$cable" \
    -device pxb-pcie,id=bridge,bus=pcie.0,bus_nr=128,numa_node=1 \
    -device pcie-root-port,id=bay,bus=bridge,chassis=1 \
    -device "$(nic_device "$nic")" "$@" >"$scratch/qemu.log" 2>&1 &
  guest_pid=$!
  undo stop_pid "$guest_pid"
}

# machine COMMAND...: has the guest's machine do something: a cable pulled, a NIC unplugged.
machine() {
  tests/boot/qmp.py "$guest_monitor" "$@"
}

# guest SECONDS COMMAND: runs it in the guest; its output, its status.
guest() {
  tests/boot/guest.py "$guest_shell" "$@"
}

# guest_wait NAME SECONDS COMMAND...: until the command, run here, succeeds, as long as the guest
# lives. On failure shows the guest's console and ends the script.
guest_wait() {
  local name=$1 deadline=$((SECONDS + $2)) began=$SECONDS
  shift 2
  until "$@" >/dev/null 2>&1; do
    if gone "$guest_pid" || [ "$SECONDS" -ge "$deadline" ]; then
      not_ok "$name" "the guest did not get that far"
      guest_tell
      totals
      exit 1
    fi
    sleep 0.2
  done
  ok "$name ($((SECONDS - began)) s)"
}

# guest_tell: what there is to know of a guest that does not do what it should.
guest_tell() {
  sed 's/^/        | /' "$scratch/qemu.log" "$guest_log" | tail -n 40
  guest 20 "systemctl --no-pager status gnomon 'gnomon-bind@*'; journalctl --no-pager -b -u gnomon -u 'gnomon-bind@*' | tail -n 60" |
    sed 's/^/        | /' || true
}

# guest_stop: ends the machine; it has nothing to save.
guest_stop() {
  kill -TERM "$guest_pid"
  check "the guest ends" wait_for 20 gone "$guest_pid"
}
