#!/usr/bin/env bash
# Boots the appliance's image in QEMU, its data NIC emulated, behind an emulated IOMMU and under
# vfio-pci; systemd starts it, as on a server. A client at the other end of the NIC asks it.
#
#   scripts/boot_test.sh [--nic e1000e|vmxnet3|virtio-net|all|none] [--disk]     default: e1000e
#
# --disk boots by the disk's own boot loader as well, to the service's ready message.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/boot/qemu.sh
. tests/boot/qemu.sh

usage="scripts/boot_test.sh [--nic e1000e|vmxnet3|virtio-net|all|none] [--disk]"
nics=(e1000e)
disk=no
while [ "$#" -gt 0 ]; do
  case $1 in
    --nic)
      case ${2:-} in
        e1000e | vmxnet3 | virtio-net) nics=("$2") ;;
        all) nics=(e1000e vmxnet3 virtio-net) ;;
        none) nics=() ;;
        *)
          echo "$usage" >&2
          exit 2
          ;;
      esac
      shift
      ;;
    --disk) disk=yes ;;
    *)
      echo "$usage" >&2
      exit 2
      ;;
  esac
  shift
done

need_qemu
image=target/boot
tools=${TOOLS:-target/release}
# The end, not a pause, after a panic; and no look whether the timer ticks in time: on a busy machine
# that of a guest in software need not.
IMAGE_DIR=$image GNOMON_PARAMETERS="panic=-1 no_timer_check" scripts/image.sh raw

# A root shell on the second serial port. The rest spares a software processor work: messages that a
# serial port takes slowly, precautions against leaks between programs, and the kernel's networks, of
# which there are none.
guest_parameters="systemd.debug_shell=ttyS1 loglevel=4 mitigations=off"
guest_parameters+=" systemd.mask=systemd-networkd.service systemd.mask=systemd-networkd.socket"

# --- the client's side ------------------------------------------------------------------------------

v4=10.77.0.1
workload=(--keys 400 --key-size 16..40 --value-size "64:6,300:3,1000:1" --seed 6 --clients 8
  --src 10.77.0.2 --dst "$v4")
"$tools/gnomon-pcapgen" "${workload[@]}" --preload --requests 0 --out "$scratch/preload.pcap" >/dev/null
"$tools/gnomon-pcapgen" "${workload[@]}" --get-ratio 1 --requests 4000 --out "$scratch/gets.pcap" >/dev/null

# cable: a namespace with gtap0, which the guest's NIC will be the other end of. Sets $client.
cable() {
  client=""
  netns client
  ip -n "$client" tuntap add dev gtap0 mode tap
  in_ns "$client" sh -c "echo 1 >/proc/sys/net/ipv6/conf/gtap0/disable_ipv6"
  ip -n "$client" link set gtap0 up
  ip -n "$client" addr add 10.77.0.2/24 dev gtap0
}

# cable_cut: takes it away again, for the next guest.
cable_cut() {
  ip netns del "$client"
}

# replays NAME: all keys stored and then asked for, over UDP: no wrong value, no miss, nothing lost.
# Few requests at a time, and patience: how quick a guest in software is says nothing.
replays() {
  check "$1" sets_and_gets
}
sets_and_gets() {
  local trace
  for trace in preload gets; do
    in_ns "$client" timeout 300 "$tools/gnomon-replay" --target "$v4:11211" --outstanding 8 \
      --timeout-ms 20000 --expect-hits --max-lost 0 "$scratch/$trace.pcap" || return
  done
}

# over_tcp NAME: a value stored over TCP, through the side door, and read back.
over_tcp() {
  check "$1" in_ns "$client" timeout 120 python3 - "$v4" <<'PYTHON'
import socket, sys
with socket.create_connection((sys.argv[1], 11211), timeout=60) as s:
    s.sendall(b"set booted 7 0 5\r\nhello\r\nget booted\r\n")
    want = b"STORED\r\nVALUE booted 7 5\r\nhello\r\nEND\r\n"
    got = b""
    while len(got) < len(want):
        got += s.recv(4096) or sys.exit(f"closed after {got}")
    sys.exit(got != want and f"{got}")
PYTHON
}

# of_unit PROPERTY: what systemd has on record of the service.
of_unit() {
  guest 120 "systemctl show --value -p $1 gnomon.service"
}
unit_is() {
  [ "$(of_unit "$1")" = "$2" ]
}

# --- one NIC model ----------------------------------------------------------------------------------

appliance_boots() {
  local nic=$1 began=$SECONDS
  cable
  guest_start "$client" "$nic" -kernel "$image/vmlinuz" -initrd "$image/initrd.img" \
    -append "$(cat "$image/command-line") $guest_parameters gnomon.port=$nic_address gnomon.ip=$v4/24"
  guest_wait "$nic: answers a ping" 900 in_ns "$client" ping -q -c 1 -W 1 "$v4"
  guest_wait "$nic: systemd says that it serves" 120 unit_is ActiveState active
  check "$nic: its unit bound it to vfio-pci" guest 120 \
    "systemctl is-active gnomon-bind@$nic_address && readlink /sys/bus/pci/devices/$nic_address/driver | grep vfio-pci"
  check "$nic: ping" in_ns "$client" ping -q -c 5 -i 0.2 -W 20 "$v4"
  check "$nic: ping, 1,400 bytes" in_ns "$client" ping -q -c 3 -i 0.2 -W 20 -s 1400 "$v4"
  over_tcp "$nic: set and get over TCP, through the side door"
  replays "$nic: sets and gets over UDP, none wrong"

  check "$nic: killed" guest 120 "systemctl kill -s KILL gnomon"
  guest_wait "$nic: systemd starts it anew" 120 unit_is NRestarts 1
  guest_wait "$nic: it is ready again" 300 unit_is ActiveState active
  guest_wait "$nic: it answers again" 60 in_ns "$client" ping -q -c 1 -W 1 "$v4"
  replays "$nic: sets and gets after that, none wrong"

  check "$nic: stops" guest 180 "systemctl stop gnomon"
  check "$nic: exit status 0 on SIGTERM" guest 120 \
    "systemctl show -p ExecMainCode,ExecMainStatus,Result gnomon | sort | tr '\n' ' ' |
      tee /dev/stderr | grep '^ExecMainCode=1 ExecMainStatus=0 Result=success '"
  check "$nic: every frame and slot accounted for" guest 120 \
    "journalctl --no-pager -b -o cat -u gnomon | tail -n 20 | tee /dev/stderr | grep -E '^balanced +yes'"
  check "$nic: the kernel has the NIC back" guest 180 \
    "systemctl stop gnomon-bind@$nic_address && readlink /sys/bus/pci/devices/$nic_address/driver | tee /dev/stderr | grep -v vfio"
  guest_stop
  cable_cut
  echo "note    $nic: $((SECONDS - began)) s"
}

# disk_boots: nothing told from outside. It serves kernel sockets on loopback then.
disk_boots() {
  cable
  guest_start "$client" e1000e
  guest_wait "from disk: the service is ready" 900 grep -aq 'Started.*gnomon.service' "$guest_log"
  guest_stop
  cable_cut
}

for nic in "${nics[@]}"; do
  appliance_boots "$nic"
done
[ "$disk" = no ] || disk_boots
totals
