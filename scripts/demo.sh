#!/usr/bin/env bash
# The whole thing in one go: makes a workload, boots the appliance on a DPDK port, plays the
# workload at it from another process, verifies every reply, and shows one screen.
#
# The port is a memif: DPDK to DPDK through shared memory, no NIC, no kernel, no privilege. Where
# that is impossible it is a TAP device, and where that is impossible too, kernel sockets; the
# reason is printed. A wrong reply is never a reason for another way: it ends the demo with 1.
#
#   DEMO_REQUESTS=1000000 DEMO_KEYS=100000 DEMO_WAYS="memif tap sockets" scripts/demo.sh
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
scripts/provision.sh demo
make_scratch

keys=${DEMO_KEYS:-100000}
requests=${DEMO_REQUESTS:-1000000}
seed=${DEMO_SEED:-11211}
outstanding=256
bin=target/release
service=10.90.0.1
service_mac=02:00:00:00:90:01

echo "building (the first time takes minutes)"
release_build

echo "writing the workload: $requests requests for $keys keys, Zipf 0.99, 95 % get, seed $seed"
workload=(--keys "$keys" --key-size 16..64 --value-size "64:6,300:3,1000:1"
  --popularity zipf:0.99 --get-ratio 0.95 --seed "$seed" --clients 64
  --src 10.90.1.1 --src-addresses 64 --dst "$service" --dst-mac "$service_mac")
"$bin/gnomon-pcapgen" "${workload[@]}" --preload --requests 0 --out "$scratch/preload.pcap" >"$scratch/pcapgen.log"
"$bin/gnomon-pcapgen" "${workload[@]}" --requests "$requests" --out "$scratch/trace.pcap" >>"$scratch/pcapgen.log"

# boot PREFIX... -- ARGS...: starts the appliance behind PREFIX and waits for its ready line.
boot() {
  local prefix=() deadline=$((SECONDS + 30))
  while [ "$1" != -- ]; do
    prefix+=("$1")
    shift
  done
  shift
  appliance_log=$scratch/appliance.err
  appliance_out=$scratch/appliance.json
  : >"$appliance_out"
  "${prefix[@]}" "$bin/gnomon" serve --json -m 256 "$@" >"$appliance_out" 2>"$appliance_log" &
  appliance_pid=$!
  undo stop_pid "$appliance_pid"
  until grep -q '"version"' "$appliance_out"; do
    if gone "$appliance_pid" || [ "$SECONDS" -ge "$deadline" ]; then
      why=$(tail -n 1 "$appliance_log")
      stop_pid "$appliance_pid" || true
      return 1
    fi
    sleep 0.05
  done
}

# One worker, because one client process plays through one queue; the last CPU, because the
# control plane and the client live on the others.
cores=()
mapfile -t cpus < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
[ "${#cpus[@]}" -lt 2 ] || cores=(--cores "${cpus[-1]}")

# Each way boots the appliance and sets $client (the command that plays) and $to (its flags).
# It fails, with $why set, only where its kind of port cannot be had.
way_memif() {
  local socket=$scratch/memif.sock
  boot env -- "${cores[@]}" -p 0 --side-door none --ip "$service/16" \
    --port "net_memif0,role=server,id=0,socket=$socket,socket-abstract=no,mac=$service_mac" || return 1
  client=(env)
  to=(--port "net_memif0,role=client,id=0,socket=$socket,socket-abstract=no")
}

way_tap() {
  local server="gnomon-$$-server" clients="gnomon-$$-client" device="gnd$$"
  local ns
  for ns in "$server" "$clients"; do
    why=$(ip netns add "$ns" 2>&1) || return 1
    undo ip netns del "$ns"
    why=$(ip netns exec "$ns" ip link set lo up 2>&1) || return 1
  done
  boot ip netns exec "$server" -- "${cores[@]}" -p 0 --side-door none --ip "$service/16" \
    --port "net_tap0,iface=$device,mac=$service_mac" || return 1
  why=$(ip -n "$server" link set "$device" netns "$clients" 2>&1) || return 1
  ip -n "$clients" link set "$device" address 02:00:00:00:90:02 up
  ip -n "$clients" addr add 10.90.1.1/16 dev "$device"
  client=(ip netns exec "$clients")
  to=(--target "$service:11211")
}

way_sockets() {
  boot env -- "${cores[@]}" -p 0 -U -1 || return 1
  client=(env)
  to=(--target "$(python3 -c 'import json,sys; print(json.loads(sys.stdin.readline())["udp"][0])' <"$appliance_out")")
}

way="" why=""
for candidate in ${DEMO_WAYS:-memif tap sockets}; do
  if "way_$candidate"; then
    way=$candidate
    break
  fi
  echo "no $candidate port on this machine: ${why:-it was not ready in time}"
done
[ -n "$way" ] || { echo "FAILED  no way to reach the appliance"; exit 1; }

# play NAME LIMIT ARGS...: the client's report as JSON; anything wrong in it ends the demo.
play() {
  local name=$1 status=0
  shift
  "${client[@]}" timeout 100 "$bin/gnomon-replay" "${to[@]}" --max-lost 0.05 \
    --json "$scratch/$name.json" "$@" "$scratch/trace.pcap" >"$scratch/$name.log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    cat "$scratch/$name.log"
    echo "FAILED  gnomon-replay ended with status $status"
    exit 1
  fi
}

echo "playing it over $way: flat out, then at half that rate"
play flat --preload "$scratch/preload.pcap" --outstanding "$outstanding"
half=$(python3 -c 'import json,sys; print(int(json.load(sys.stdin)["answered_per_s"] / 2))' <"$scratch/flat.json")
play half --rate "$half" --outstanding 4096 --limit "$((half < requests / 5 ? half * 5 : requests))"

stop_pid "$appliance_pid" || { echo "FAILED  the appliance did not stop"; exit 1; }
wait "$appliance_pid" || { cat "$appliance_log"; echo "FAILED  the appliance did not end well"; exit 1; }
python3 scripts/demo_screen.py "$way" "$outstanding" "$scratch/flat.json" "$scratch/half.json" "$appliance_out"
