#!/usr/bin/env bash
# A soak: a live appliance, filled beyond its memory, under a mixed load for a while, over TCP and
# UDP, with expiry, eviction, sizes that shift, connections that come and go, and scrapes. Then: has
# memory grown, is every packet slot home, are files and threads as many as before, was every value
# right, is every drop explained? See soak/load.py and soak/judge.py.
#
#   SOAK_SECONDS=30 SOAK_RATE=150 SOAK_PORTS="sockets af_packet" SOAK_REPORT=DIR tests/e2e/soak.sh
#
# Of the rate, in operations a second, load.py and gnomon-replay do as many each. With SOAK_REPORT
# the reports stay there, as Markdown and JSON. SOAK_STRICT_TIME=1 makes the drift of p99.9 a check
# and not a note, for a machine that does nothing else.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
need_netns
seconds=${SOAK_SECONDS:-30}
# The samples of the load's first seconds are not judged: buffers, allocator arenas and tables that are
# made once are there afterwards, and what grows then grows with the load.
settle=15
rate=${SOAK_RATE:-150}
read -ra ports <<<"${SOAK_PORTS:-sockets af_packet}"
reports=${SOAK_REPORT:-$scratch}
mkdir -p "$reports"
bin=${GNOMON_TOOLS:-target/release}
megabytes=16 metrics=127.0.0.1:9150
serve=(--json -m "$megabytes" --slots 4096 --metrics "$metrics")
# Some two hundred samples, and no more than one a second.
every=$((seconds / 200 + 1))

# What gnomon-replay plays: as much again as the memory holds, a part of it asked for often.
"$bin/gnomon-pcapgen" --keys 30000 --key-size 16..64 --value-size 64:6,300:3,1000:1 --popularity zipf:0.99 \
  --get-ratio 0.8 --seed 11211 --requests 50000 --out "$scratch/trace.pcap" >/dev/null

# start_sockets / start_af_packet: the appliance behind that port. Set $client, $target, and who serves $tcp.
start_sockets() {
  client=$server
  target=127.0.0.1:11211
  tcp=kernel
  server_start "$server" "${serve[@]}"
}
start_af_packet() {
  client=$other
  veth_pair "$server" "$client"
  client_addresses "$client" wire1
  target=$v4:11211
  tcp=worker
  server_start "$server" "${serve[@]}" \
    --port "net_af_packet0,iface=wire0,qpairs=1" --ip "$v4/24" --ip "$v6/64" --cores "${cpus[-1]}"
}

# watch OUT ARGS...: samples, from the server's namespace, where its metrics are.
watch() {
  in_ns "$server" tests/e2e/soak/watch.py "$server_pid" "$metrics" --out "$1" "${@:2}"
}

# slap FILE: a short burst of memcaslap; what it says goes to FILE.
slap() {
  in_ns "$client" timeout 300 memcaslap -v 1.0 -e 0.1 -s "$target" -T 1 -c 8 -w 1k -x 2000 >"$1" 2>&1 || true
}

# slaps FOLDER: such bursts until the soak is over.
slaps() {
  local n=0
  while [ ! -e "$1/over" ]; do
    n=$((n + 1))
    slap "$1/slap.$n"
    wait_for 15 test -e "$1/over" || true
  done
}

# lost_datagrams: how many the kernels at both ends have lost, by their own count of datagrams in
# error (no room in a socket is one) and of those that could not be sent.
lost_datagrams() {
  local ns
  for ns in "$server" "$client"; do
    # shellcheck disable=SC2016 # they are fields
    in_ns "$ns" awk '/^Udp:/ && $2 ~ /[0-9]/ { print $4 + $7 }' /proc/net/snmp
  done | awk '{ n += $1 } END { print n + 0 }'
}

# soak PORT
soak() {
  local port=$1 folder=$scratch/$1 replay load watcher slapper what status good=yes
  mkdir "$folder"
  "start_$port"
  server_wait "$port: serves" in_ns "$client" "$memc" wait "$target" 1
  # The first scrape, memcaslap, and connections to every TCP thread make what is made once.
  watch "$folder/first"
  slap "$folder/slap.0"
  for _ in {1..8}; do in_ns "$client" "$memc" tcp "$target" stats >/dev/null; done
  sleep 1
  watch "$folder/before"
  # Not by in_ns: what is stopped when the script ends must be the program itself.
  ip netns exec "$client" tests/e2e/soak/load.py "$target" "$target" --megabytes "$megabytes" --rate "$rate" \
    --seconds $((settle + seconds)) --warm "$folder/warm" --json "$folder/load.json" &
  load=$!
  undo stop_pid "$load"
  if ! wait_for 300 eval "[ -e '$folder/warm' ] || gone $load" || gone "$load"; then
    not_ok "$port: the memory fills"
    return
  fi
  lost_datagrams >"$folder/lost.before"
  # A lost reply is one that does not come in 20 s, however busy the machine.
  ip netns exec "$client" "$bin/gnomon-replay" --target "$target" --rate "$rate" \
    --limit $((rate * (settle + seconds))) --loop $((rate * (settle + seconds) / 50000 + 1)) \
    --timeout-ms 20000 --json "$folder/replay.json" "$scratch/trace.pcap" >"$folder/replay" 2>&1 &
  replay=$!
  undo stop_pid "$replay"
  slaps "$folder" &
  slapper=$!
  undo stop_pid "$slapper"
  ip netns exec "$server" tests/e2e/soak/watch.py "$server_pid" "$metrics" --out "$folder/samples" \
    --every "$every" --until "$folder/over" &
  watcher=$!
  undo stop_pid "$watcher"
  for what in load replay; do
    status=0
    wait "${!what}" || status=$?
    if [ "$status" -ne 0 ]; then
      not_ok "$port: $what ends well" "exit status $status"
      good=no
    fi
  done
  : >"$folder/over"
  wait "$watcher" || not_ok "$port: scrapes" "exit status $?"
  wait "$slapper"
  wait_for 20 no_connections || true
  watch "$folder/after"
  lost_datagrams >"$folder/lost.after"
  server_stop
  [ "$good" = yes ] || return 0
  cp "$server_log" "$folder/server"
  counted tests/e2e/soak/judge.py "$folder" --label "$port" --report "$reports/soak-$port" --tcp "$tcp" \
    --settle "$settle" ${SOAK_STRICT_TIME:+--strict-time}
}

# no_connections: whether the server has seen every client go.
no_connections() {
  rm -f "$scratch/now"
  watch "$scratch/now"
  grep -q '"connections": 0,' "$scratch/now"
}

server="" other="" client="" target=""
netns server
netns other
for port in "${ports[@]}"; do
  soak "$port"
done
totals
