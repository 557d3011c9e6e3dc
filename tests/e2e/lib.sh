# Sourced by the end-to-end scripts: a server of one's own, namespaces of one's own, captures.
# shellcheck shell=bash
# Each script runs in the repository's root, prints one line per check, and ends in `totals`.

# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch

gnomon=${GNOMON:-target/release/gnomon}
# shellcheck disable=SC2034 # the sourcing scripts use it
memc=tests/e2e/memc.py

# --- namespaces ---------------------------------------------------------------------------------

# need_netns: ends the script, counted as skipped, where namespaces cannot be made.
need_netns() {
  local probe="gnomon-$$-probe" why
  if ! why=$(ip netns add "$probe" 2>&1 && ip netns exec "$probe" true 2>&1); then
    ip netns del "$probe" 2>/dev/null || true
    skip "$(basename "$0")" "no network namespaces here: $why"
    totals
    exit
  fi
  ip netns del "$probe"
}

# netns NAME [VARIABLE]: makes the namespace gnomon-PID-NAME, with its loopback up, and sets $VARIABLE,
# or $NAME, to it.
netns() {
  local name="gnomon-$$-$1"
  ip netns add "$name"
  undo ip netns del "$name"
  ip -n "$name" link set lo up
  # memcaslap looks names up with AI_ADDRCONFIG, which does not count loopback as an address.
  ip -n "$name" addr add 198.51.100.1/32 dev lo
  printf -v "${2:-$1}" '%s' "$name"
}

# in_ns NS COMMAND...
in_ns() {
  local ns=$1
  shift
  ip netns exec "$ns" "$@"
}

# veth_pair SERVER_NS CLIENT_NS [QUEUES]: a cable, wire0 at the server's end, wire1 at the client's.
# Checksums are made in full, so that they can be checked, and the server's kernel sees nothing of
# what arrives: AF_PACKET taps the frames before the drop.
veth_pair() {
  local server=$1 client=$2 queues=${3:-2}
  ip -n "$server" link add wire0 numtxqueues "$queues" numrxqueues "$queues" type veth \
    peer name wire1 numtxqueues "$queues" numrxqueues "$queues" netns "$client"
  in_ns "$server" sh -c "echo 1 >/proc/sys/net/ipv6/conf/wire0/disable_ipv6"
  in_ns "$server" ethtool -K wire0 tx off gro off gso off tso off >/dev/null 2>&1
  in_ns "$client" ethtool -K wire1 tx off gro off gso off tso off >/dev/null 2>&1
  in_ns "$server" nft add table netdev gnomon
  in_ns "$server" nft add chain netdev gnomon ingress \
    '{ type filter hook ingress device wire0 priority 0; policy drop; }'
  ip -n "$server" link set wire0 up
  ip -n "$client" link set wire1 up
}

# client_addresses NS DEVICE: the client's side of the test network.
client_addresses() {
  ip -n "$1" addr add 10.77.0.2/24 dev "$2"
  ip -n "$1" addr add fd77::2/64 dev "$2" nodad
}

# --- servers ------------------------------------------------------------------------------------

# server_start NS ARGS...: starts `gnomon serve ARGS` in the namespace. Sets $server_pid, $server_log.
server_start() {
  local ns=$1
  shift
  server_log=$scratch/server-$RANDOM.log
  ip netns exec "$ns" "$gnomon" serve "$@" >"$server_log" 2>&1 &
  server_pid=$!
  undo stop_pid "$server_pid"
}

# memcached_start NS ARGS...: starts the genuine server, or $GENUINE in its place, on $genuine, TCP and UDP. Sets
# $memcached_pid.
genuine=127.0.0.1:11311
memcached_start() {
  local ns=$1
  shift
  ip netns exec "$ns" "${GENUINE:-memcached}" -u nobody -l "${genuine%:*}" -p "${genuine##*:}" -U "${genuine##*:}" -t 2 "$@" \
    >"$scratch/memcached.log" 2>&1 &
  memcached_pid=$!
  undo stop_pid "$memcached_pid"
  check "memcached answers" in_ns "$ns" "$memc" wait "$genuine" 10
}

# server_wait NAME COMMAND...: until the command succeeds, as long as the server lives; 30 s.
# On failure shows the server's log and ends the script.
server_wait() {
  local name=$1 deadline=$((SECONDS + 30))
  shift
  until "$@" >/dev/null 2>&1; do
    if gone "$server_pid" || [ "$SECONDS" -ge "$deadline" ]; then
      not_ok "$name" "the server did not get that far"
      sed 's/^/        | /' "$server_log" | tail -n 60
      totals
      exit 1
    fi
    sleep 0.05
  done
  ok "$name"
}

# server_stop: asks it to end and expects it to, in good order.
server_stop() {
  local status=0
  kill -TERM "$server_pid"
  if ! wait_for 15 gone "$server_pid"; then
    kill -KILL "$server_pid"
    not_ok "stops on SIGTERM" "still there after 15 s"
    return
  fi
  wait "$server_pid" || status=$?
  if [ "$status" -eq 0 ]; then
    ok "stops on SIGTERM with status 0"
  else
    not_ok "stops on SIGTERM" "exit status $status"
    sed 's/^/        | /' "$server_log" | tail -n 60
  fi
}

# --- clients ------------------------------------------------------------------------------------

# slap NAME NS LOSS ARGS...: memcaslap with verification. LOSS says whether lost datagrams count
# (strict) or are only reported (counted). Wrong values always count.
#
# memcaslap gives a request up after its own patience and aborts (ms_sort_udp_packet) when the
# answer comes after all, as on a machine busy with other things. A server that answers wrongly
# makes it abort at every try, a late one does not: it gets three.
slap() {
  local name=$1 ns=$2 loss=$3 log=$scratch/slap bad=0 key value try
  shift 3
  for try in 1 2 3; do
    if in_ns "$ns" timeout 120 memcaslap -v 1.0 "$@" >"$log" 2>&1; then
      try=good
      break
    fi
    grep -q ms_sort_udp_packet "$log" || break
    echo "note    $name: try $try aborted on a late answer"
  done
  if [ "$try" != good ]; then
    not_ok "$name" "memcaslap failed"
    sed 's/^/        | /' "$log"
    return
  fi
  for key in verify_failed verify_misses packet_disorder packet_drop udp_timeout; do
    value=$(sed -n "s/^$key: //p" "$log")
    case $key/$loss in
      packet_drop/counted | udp_timeout/counted | verify_misses/counted) continue ;;
    esac
    [ "${value:-0}" -eq 0 ] || bad=1
  done
  [ "$(sed -n 's/^cmd_get: //p' "$log")" -gt 0 ] || bad=1
  if [ "$bad" -eq 0 ]; then
    ok "$name ($(sed -n 's/.*\(TPS: [0-9]*\).*/\1/p' "$log"), drops $(sed -n 's/^packet_drop: //p' "$log"))"
  else
    not_ok "$name"
    sed 's/^/        | /' "$log"
  fi
}

# --- captures -----------------------------------------------------------------------------------

# capture_start NS DEVICE FILE: records the wire until capture_stop.
capture_start() {
  local log=$scratch/dumpcap.log
  : >"$log"
  ip netns exec "$1" dumpcap -q -B 64 -i "$2" -w "$3" >"$log" 2>&1 &
  capture_pid=$!
  undo stop_pid "$capture_pid"
  wait_for 10 grep -q '^File:' "$log"
}
capture_stop() {
  kill -INT "$capture_pid"
  wait "$capture_pid" 2>/dev/null || true
}

# wireshark FILE FILTER: how many captured packets match. Checksums are verified.
wireshark() {
  tshark -r "$1" -o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -o tcp.check_checksum:TRUE \
    -Y "$2" -T fields -e frame.number 2>"$scratch/tshark.err" | wc -l
}

# capture_is_clean FILE V4 V6: no reply in it is malformed, carries a bad checksum, or was flagged
# as an error; and replies of every kind are there to be judged.
capture_is_clean() {
  local file=$1 from="(ip.src == $2 || ipv6.src == $3)" n name filter
  while IFS='|' read -r name filter; do
    n=$(wireshark "$file" "$from && $filter")
    if [ "$n" -gt 0 ]; then
      ok "captured: $name ($n)"
    else
      not_ok "captured: $name" "there is none"
    fi
  done <<KINDS
IPv4 replies in one datagram|ip && udp.srcport == 11211 && udp.payload[4:2] == 00:01
IPv4 replies in several|ip && udp.srcport == 11211 && udp.payload[4:2] != 00:01
IPv6 replies in one datagram|ipv6 && udp.srcport == 11211 && udp.payload[4:2] == 00:01
IPv6 replies in several|ipv6 && udp.srcport == 11211 && udp.payload[4:2] != 00:01
TCP segments|tcp.srcport == 11211
KINDS
  # Linux writes 0xffff for a sum of 0 in TCP too, where Wireshark wants 0; both are right.
  while IFS='|' read -r name filter; do
    n=$(wireshark "$file" "$from && ($filter)")
    if [ "$n" -eq 0 ]; then
      ok "captured: no $name"
    else
      not_ok "captured: no $name" "$n packets"
      tshark -r "$file" -o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -Y "$from && ($filter)" -V -c 2000 2>/dev/null | head -n 80
    fi
  done <<FAULTS
malformed packet|_ws.malformed
bad IPv4 checksum|ip.checksum.status == "Bad"
bad UDP checksum|udp.checksum.status == "Bad" or (ipv6 and udp.checksum == 0)
bad TCP checksum|tcp.checksum.status == "Bad" and tcp.checksum != 0xffff
bad ICMP checksum|icmp.checksum.status == "Bad" or icmpv6.checksum.status == "Bad"
packet flagged as an error|_ws.expert.severity == "Error"
FAULTS
  # The judge must be able to find fault: the same capture, one byte in a hundred changed.
  editcap -E 0.01 --seed 1 "$file" "$file.damaged" 2>/dev/null
  n=$(wireshark "$file.damaged" "$from && udp.checksum.status == \"Bad\"")
  rm -f "$file.damaged"
  if [ "$n" -gt 0 ]; then
    ok "planted errors in the same capture are found ($n)"
  else
    not_ok "planted errors in the same capture are found" "none was"
  fi
}

# rust_client FEATURES...: the client that reads one-sided, as $scratch/rust-client. Scripts that want different
# features run side by side.
rust_client() {
  (flock 9 && cargo build -q -p gnomon-client "$@" --example reads &&
    cp target/debug/examples/reads "$scratch/rust-client") 9>target/rust-client.lock
}
