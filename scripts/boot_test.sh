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

v4=10.77.0.1 v6=fd77::1
# What is stored over IPv4 is asked for over both.
workload=(--keys 400 --key-size 16..40 --value-size "64:6,300:3,1000:1" --seed 6 --clients 8)
over4=(--src 10.77.0.2 --dst "$v4") over6=(--src fd77::2 --dst "$v6")
"$tools/gnomon-pcapgen" "${workload[@]}" "${over4[@]}" --preload --requests 0 --out "$scratch/preload.pcap" >/dev/null
"$tools/gnomon-pcapgen" "${workload[@]}" "${over4[@]}" --get-ratio 1 --requests 3000 --out "$scratch/gets4.pcap" >/dev/null
"$tools/gnomon-pcapgen" "${workload[@]}" "${over6[@]}" --get-ratio 1 --requests 1000 --out "$scratch/gets6.pcap" >/dev/null

# cable NIC: a namespace with gtap0, which the guest's NIC will be the other end of. Sets $client.
cable() {
  local queues=()
  [ "$(nic_queues "$1")" = 1 ] || queues=(multi_queue)
  client=""
  netns client
  ip -n "$client" tuntap add dev gtap0 mode tap "${queues[@]}"
  ip -n "$client" link set gtap0 up
  client_addresses "$client" gtap0
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
  local trace at
  for trace in preload gets4 gets6; do
    at="$v4:11211"
    [ "$trace" != gets6 ] || at="[$v6]:11211"
    in_ns "$client" timeout 300 "$tools/gnomon-replay" --target "$at" --outstanding 8 \
      --timeout-ms 20000 --expect-hits --max-lost 0 "$scratch/$trace.pcap" || return
  done
}

# over_tcp NAME ADDRESS: values stored over 16 connections, which the workers serve, and read back, small and
# larger than a connection's buffers.
over_tcp() {
  check "$1" in_ns "$client" timeout 300 python3 - "$2" <<'PYTHON'
import random, socket, sys
clients = [socket.create_connection((sys.argv[1], 11211), timeout=120) for _ in range(16)]
values = [random.Random(n).randbytes(60_000 if n % 8 == 0 else 100) for n in range(16)]
for n, (client, value) in enumerate(zip(clients, values)):
    client.sendall(b"set booted%d 7 0 %d\r\n%s\r\nget booted%d\r\n" % (n, len(value), value, n))
for n, (client, value) in enumerate(zip(clients, values)):
    want = b"STORED\r\nVALUE booted%d 7 %d\r\n%s\r\nEND\r\n" % (n, len(value), value)
    got = b""
    while len(got) < len(want):
        got += client.recv(1 << 16) or sys.exit(f"closed after {got[:100]}")
    if got != want:
        sys.exit(f"{n}: {got[:100]}")
PYTHON
}

pings() {
  in_ns "$client" ping -q -i 0.2 -W 20 "$@"
}
answers() {
  in_ns "$client" ping -q -c 1 -W 1 "$v4"
}

# of_unit PROPERTY: what systemd has on record of the service.
of_unit() {
  guest 120 "systemctl show --value -p $1 gnomon.service"
}
unit_is() {
  [ "$(of_unit "$1")" = "$2" ]
}

# logged WORDS: a line of the service's since it started last.
logged() {
  guest 60 "journalctl --no-pager -o cat -u gnomon _SYSTEMD_INVOCATION_ID=\$(systemctl show --value -p InvocationID gnomon) |
    grep -F '$1'"
}

# figure METRIC CONDITION: holds of the sum of the metric's samples.
figure() {
  guest 60 "gnomon stats $1 | awk '{ sum += \$NF } END { print; print sum; exit !(sum $2) }'"
}

# lies_on_node NODE: 95 % of the service's memory that is no file's at least.
lies_on_node() {
  guest 60 "awk -v node=N$1 '
    !/file=\/(usr|lib)/ {
      sub(/.*kernelpagesize_kB=/, \"& \")
      for (i = 1; i <= NF; i++) {
        if (split(\$i, pages, \"=\") == 2 && pages[1] ~ /^N[0-9]+\$/) kb[pages[1]] += pages[2] * \$NF
      }
    }
    END {
      for (n in kb) { print n, kb[n], \"KB\"; all += kb[n] }
      exit !(all > 65536 && kb[node] > 0.95 * all)
    }' /proc/\$(systemctl show --value -p MainPID gnomon)/numa_maps"
}
# worker_has CPU: the worker runs nowhere else, and no other thread does.
worker_has() {
  guest 60 "cd /proc/\$(systemctl show --value -p MainPID gnomon)/task &&
    for task in *; do
      echo \$(cat \$task/comm) \$(sed -n 's/^Cpus_allowed_list:\t//p' \$task/status)
    done | tee /dev/stderr | awk -v cpu=$1 '
      \$1 == \"worker-0\" { own = \$2 == cpu; next }
      \$2 ~ \"(^|[,-])\" cpu \"([,-]|\$)\" { shared = 1 }
      END { exit !own || shared }'"
}

# Software that plays a processor takes long to begin and to end a sleep.
# worker_takes CONDITION: holds of the percentage of a CPU that the first worker has over three seconds.
worker_takes() {
  guest 60 "cd /proc/\$(systemctl show --value -p MainPID gnomon)/task &&
    times=\$(grep -lx worker-0 */comm) && times=\${times%comm}schedstat &&
    read -r before _ <\$times && sleep 3 && read -r after _ <\$times &&
    percent=\$(((after - before) / 30000000)) && echo \"\$percent %\" >&2 && [ \$percent $1 ]"
}

# divided NIC: on each node a part: the NIC's on node 1, and on node 0 that of a port that has none.
divided() {
  local nic=$1 pages=/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
  check "$nic: divided over both nodes, it starts" guest 180 "echo 128 >$pages && grep -x 128 $pages &&
    mkdir -p /run/systemd/system/gnomon.service.d && printf '%s\n' '[Service]' Environment=GNOMON_NUMA_NODE=split \
      Environment=GNOMON_CORES=0-1 'Environment=GNOMON_PORT=$nic_address;net_tap1' \
      Environment=GNOMON_IP=0=$v4/24,0=$v6/64,1=10.78.0.1/24 >/run/systemd/system/gnomon.service.d/divided.conf &&
    systemctl daemon-reload && systemctl restart gnomon"
  guest_wait "$nic: divided, it answers" 60 answers
  check "$nic: items lie on both nodes in turn, and each region on its own" guest 60 "awk '
    / (interleave:0-1|prefer:[01]) / {
      print
      on[0] = on[1] = 0
      for (i = 1; i <= NF; i++) if (split(\$i, n, \"=\") == 2 && n[1] ~ /^N[01]\$/) on[substr(n[1], 2)] = n[2]
      if (\$2 == \"interleave:0-1\") { all[0] += on[0]; all[1] += on[1] }
      else { node = substr(\$2, 8); regions[node]++; if (on[node] == 0 || on[1 - node] > 0) astray = 1 }
    }
    END {
      more = all[0] - all[1]
      exit !(all[0] > 15 && more * more <= 4 && regions[0] == 1 && regions[1] == 1 && !astray)
    }' /proc/\$(systemctl show --value -p MainPID gnomon)/numa_maps"
  check "$nic: each worker runs on its node" guest 60 "cd /proc/\$(systemctl show --value -p MainPID gnomon)/task &&
    for task in *; do
      echo \$(cat \$task/comm) \$(sed -n 's/^Cpus_allowed_list:\t//p' \$task/status)
    done | grep ^worker- | sort | tr '\n' ' ' | tee /dev/stderr | grep -x 'worker-0 0 worker-1 1 '"
  over_tcp "$nic: divided: sets and gets over TCP" "$v4"
  # A GPU's kernels, run by the guest's own CPUs: one for each node.
  check "$nic: divided, with a GPU on each node, it starts" guest 180 "
    printf '%s\n' '[Service]' Environment=GNOMON_ENGINE=simt Environment=GNOMON_GPU_DEVICE=0,1 \
      >/run/systemd/system/gnomon.service.d/gpus.conf && systemctl daemon-reload && systemctl restart gnomon"
  guest_wait "$nic: divided, with GPUs, it answers" 60 answers
  replays "$nic: divided, with GPUs: no wrong value, no miss, nothing lost"
  check "$nic: each node's GPU has a worker, and the NIC's has done its requests" in_ns "$client" \
    timeout 120 python3 - "$v4" <<'PYTHON'
import socket, sys
client = socket.create_connection((sys.argv[1], 11211), timeout=60)
client.sendall(b"stats engine\r\nquit\r\n")
rows = dict(line.split()[1:3] for line in client.makefile() if line.startswith("STAT "))
print(rows)
each = [rows.get(f"gpu:{gpu}:{what}") for gpu in (0, 1) for what in ("workers", "state")]
sys.exit(each != ["1", "used"] * 2 or int(rows["gpu_requests"]) < 4000)
PYTHON
}

# --- one NIC model ----------------------------------------------------------------------------------

# recovers NIC: how soon it answers when its cable is back, a second at most. The guest is software on
# a machine that does other things too: the best of three counts.
recovers() {
  local nic=$1 try began took best=""
  for try in 1 2 3; do
    machine set_link name=nic up=off >/dev/null
    wait_for 60 silent || break
    machine set_link name=nic up=on >/dev/null
    began=${EPOCHREALTIME/./}
    wait_for 60 in_ns "$client" ping -q -c 1 -W 0.1 "$v4" || break
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
    echo "note    $nic: try $try: answers $took ms after the link's return"
    [ -n "$best" ] && [ "$best" -le "$took" ] || best=$took
    [ "$best" -gt 1000 ] || break
  done
  check "$nic: answers within a second of the link's return (${best:-not at all})" [ "${best:-9999}" -le 1000 ]
}
silent() {
  ! in_ns "$client" ping -q -c 1 -W 0.2 "$v4"
}

# stops NIC: as its unit stops it, and all is in good order.
stops() {
  check "$1: stops" guest 180 "systemctl stop gnomon"
  check "$1: exit status 0" guest 120 \
    "systemctl show -p ExecMainCode,ExecMainStatus,Result gnomon | sort | tr '\n' ' ' |
      tee /dev/stderr | grep '^ExecMainCode=1 ExecMainStatus=0 Result=success '"
  check "$1: every frame and slot accounted for" guest 120 \
    "journalctl --no-pager -b -o cat -u gnomon | tail -n 20 | tee /dev/stderr | grep -E '^balanced +yes'"
}

appliance_boots() {
  local nic=$1 began=$SECONDS device service="gnomon.port=$nic_address gnomon.ip=$v4/24,$v6/64"
  [ "$(nic_queues "$nic")" = 1 ] || service+=" gnomon.cores=0-1"
  cable "$nic"
  guest_start "$client" "$nic" -kernel "$image/vmlinuz" -initrd "$image/initrd.img" \
    -append "$(cat "$image/command-line") $guest_parameters $service"
  guest_wait "$nic: answers a ping" 900 answers
  guest_wait "$nic: systemd says that it serves" 120 unit_is ActiveState active
  check "$nic: its unit bound it to vfio-pci" guest 120 \
    "systemctl is-active gnomon-bind@$nic_address && readlink /sys/bus/pci/devices/$nic_address/driver | grep vfio-pci"
  check "$nic: items, index and packets lie on its NUMA node" lies_on_node 1
  [ "$(nic_queues "$nic")" -gt 1 ] || check "$nic: the worker runs there, alone" worker_has 1
  check "$nic: the worker looks for frames all the time" worker_takes "-ge 85"
  check "$nic: ping" pings -c 5 "$v4"
  check "$nic: ping, 1,400 bytes" pings -c 3 -s 1400 "$v4"
  check "$nic: ping, IPv6" pings -c 3 "$v6"
  over_tcp "$nic: sets and gets over TCP, by the workers" "$v4"
  over_tcp "$nic: the same over IPv6" "$v6"
  replays "$nic: sets and gets over UDP, none wrong"
  if [ "$(nic_queues "$nic")" -gt 1 ]; then
    check "$nic: each of its queues brings requests" guest 60 \
      "gnomon stats gnomon_worker_frames_received_total | tee /dev/stderr |
        awk '\$NF > 100 { n++ } END { exit n != $(nic_queues "$nic") }'"
    check "$nic: each of them brings TCP segments" guest 60 \
      "gnomon stats gnomon_worker_tcp_segments_total | tee /dev/stderr |
        awk '\$NF > 10 { n++ } END { exit n != $(nic_queues "$nic") }'"
  else
    check "$nic: the worker has taken TCP segments" figure gnomon_worker_tcp_segments_total "> 50"
  fi

  check "$nic: systemd reloads it" guest 60 "systemctl reload gnomon"
  check "$nic: its cable is pulled" machine set_link name=nic up=off
  guest_wait "$nic: the log says so" 60 logged "link down"
  check "$nic: so does the metric" figure gnomon_port_link_up "== 0"
  check "$nic: the cable is back" machine set_link name=nic up=on
  guest_wait "$nic: the log says that, too" 60 logged "link up"
  # There may be more: a NIC that negotiates its speed loses the link for a moment.
  check "$nic: both are counted" figure gnomon_port_link_changes_total ">= 2"
  recovers "$nic"

  # As docs/hardware.md has it: none on the other node.
  check "$nic: huge pages stay on its node alone" guest 60 \
    "echo 0 >/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
  check "$nic: killed" guest 120 "systemctl kill -s KILL gnomon"
  guest_wait "$nic: systemd starts it anew" 120 unit_is NRestarts 1
  guest_wait "$nic: it is ready again" 300 unit_is ActiveState active
  guest_wait "$nic: it answers again" 60 answers
  check "$nic: its memory lies there again" lies_on_node 1
  replays "$nic: sets and gets after that, none wrong"

  check "$nic: unplugged" machine device_del id=nic --until DEVICE_DELETED
  guest_wait "$nic: the log says so" 60 logged "the device is gone"
  check "$nic: so does the metric" figure gnomon_port_removed "== 1"
  check "$nic: it lives on" unit_is NRestarts 1
  stops "$nic, gone"
  device=driver=$(nic_device "$nic")
  # shellcheck disable=SC2086 # words
  check "$nic: plugged in again" machine device_add ${device//,/ }
  guest_wait "$nic: the kernel has found it" 60 guest 20 "readlink /sys/bus/pci/devices/$nic_address/driver"
  # Memory is to come from the control plane's node now, which has no huge pages left.
  check "$nic: bound and started, without a node's huge pages, to save power" guest 180 \
    "printf '%s\n' --numa-node=off --energy=manage >>/etc/gnomon.conf && systemctl restart gnomon-bind@$nic_address && systemctl start gnomon"
  guest_wait "$nic: it answers once more" 60 answers
  check "$nic: its worker sleeps when nothing comes" worker_takes "-lt 75"
  replays "$nic: sets and gets over the new device, none wrong"

  divided "$nic"
  stops "$nic"
  check "$nic: the kernel has the NIC back" guest 180 \
    "systemctl stop gnomon-bind@$nic_address && readlink /sys/bus/pci/devices/$nic_address/driver | tee /dev/stderr | grep -v vfio"
  guest_stop
  cable_cut
  echo "note    $nic: $((SECONDS - began)) s"
}

# disk_boots: nothing told from outside. It serves kernel sockets on loopback then.
disk_boots() {
  cable e1000e
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
