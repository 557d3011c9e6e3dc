# Sourced after lib.sh by the scripts that put a wire between client and server.
# shellcheck shell=bash

v4=10.77.0.1
v6=fd77::1

# Two workers on two queues, where the machine has two CPUs.
mapfile -t cpus < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2], sep="\n")')
# shellcheck disable=SC2034 # the sourcing scripts use it
cores=$(IFS=,; echo "${cpus[*]}")

# wire_checks NS DEVICE [ARGS]: all that a client at the other end of a wire may ask of the appliance.
# ARGS go to edges.py over IPv4.
wire_checks() {
  local ns=$1 device=$2 pcap
  shift 2
  pcap=$(mktemp -u "${TMPDIR:-/tmp}/gnomon-wire-XXXXXX.pcapng")
  undo rm -f "$pcap"
  check "ping" in_ns "$ns" ping -q -c 5 -i 0.2 -W 2 "$v4"
  check "ping, 1,400 bytes" in_ns "$ns" ping -q -c 3 -i 0.2 -W 2 -s 1400 "$v4"
  check "IPv6 ping" in_ns "$ns" ping -q -c 5 -i 0.2 -W 2 "$v6"
  check "IPv6 ping, 1,400 bytes" in_ns "$ns" ping -q -c 3 -i 0.2 -W 2 -s 1400 "$v6"

  check "the capture starts" capture_start "$ns" "$device" "$pcap"
  counted in_ns "$ns" tests/e2e/edges.py "$v4:11211" "$v4:11211" --source 10.77.0.2 --label "IPv4: " "$@"
  # Through the side door, IPv6 over TCP as well.
  counted in_ns "$ns" tests/e2e/edges.py "[$v6]:11211" "[$v6]:11211" --source fd77::2 --label "IPv6: "
  check "ping while captured" in_ns "$ns" ping -q -c 2 -i 0.2 -W 2 "$v4"
  check "IPv6 ping while captured" in_ns "$ns" ping -q -c 2 -i 0.2 -W 2 "$v6"
  capture_stop
  capture_is_clean "$pcap" "$v4" "$v6"

  slap "memcaslap -U at full speed: no wrong value" "$ns" counted -s "$v4:11211" -U -T 1 -c 16 -t 5s
  slap "memcaslap -U -d 10 at full speed: no wrong value" "$ns" counted -s "$v4:11211" -U -T 1 -c 16 -t 2s -d 10
}
