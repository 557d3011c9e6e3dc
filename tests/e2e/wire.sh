# Sourced after lib.sh by the scripts that put a wire between client and server.
# shellcheck shell=bash disable=SC2154 # scratch and gnomon are those of lib.sh

v4=10.77.0.1
v6=fd77::1

# Two workers on two queues, where the machine has two CPUs.
mapfile -t cpus < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2], sep="\n")')
# shellcheck disable=SC2034 # the sourcing scripts use it
cores=$(IFS=,; echo "${cpus[*]}")

# wire_up KIND ARGS...: a client's namespace and the appliance's, and DPDK's net_tap, af_packet, af_xdp or memif
# between them, a queue to each worker; the appliance is started with ARGS, and serves. Sets $server, $client,
# $device, the client's NIC, and $workers, how many there are. At the client's end of the memif DPDK's testpmd
# joins it to a TAP device.
# shellcheck disable=SC2034 # the sourcing scripts use them
wire_up() {
  local kind=$1 port stay cores=$cores
  shift
  server="" client="" workers=${#cpus[@]}
  netns "server$RANDOM" server
  netns "client$RANDOM" client
  case $kind in
    net_tap)
      device=gtap0
      port=net_tap0,iface=$device
      ;;
    af_packet)
      device=wire1
      port=net_af_packet0,iface=wire0,qpairs=${#cpus[@]}
      veth_pair "$server" "$client"
      client_addresses "$client" "$device"
      ;;
    af_xdp)
      # The driver takes one queue of a device that cannot say how many are combined, as veth cannot.
      device=wire1
      port=net_af_xdp0,iface=wire0
      workers=1 cores=${cpus[0]}
      veth_pair "$server" "$client" 1
      client_addresses "$client" "$device"
      ;;
    memif)
      device=gtap0
      port=net_memif0,role=server,id=0,socket=$scratch/$server.sock,socket-abstract=no,mac=02:00:00:00:77:01
      workers=1 cores=${cpus[0]}
      ;;
  esac
  server_start "$server" --port "$port" --ip "$v4/24" --ip "$v6/64" --cores "$cores" "$@"
  if [ "$kind" = net_tap ]; then
    # The kernel's end of the TAP device becomes the client's NIC.
    server_wait "makes its TAP device" ip -n "$server" link show "$device"
    # Ready, not merely there: the driver configures the device under the name that it gave it.
    server_wait "is ready" grep -qi ready "$server_log"
    ip -n "$server" link set "$device" netns "$client"
    # Both ends of a TAP device have one address until one of them takes another.
    ip -n "$client" link set "$device" address 02:00:00:00:77:02 up
    client_addresses "$client" "$device"
  fi
  if [ "$kind" = memif ]; then
    server_wait "is ready" grep -qi ready "$server_log"
    # It runs until its standard input ends.
    mkfifo "$scratch/$client.in"
    in_ns "$client" nice -n 5 "${TESTPMD:-dpdk-testpmd}" --no-huge -m 256 --no-shconf --no-pci -l "${cpus[0]},${cpus[-1]}" \
      --vdev "net_memif0,role=client,id=0,socket=$scratch/$server.sock,socket-abstract=no" \
      --vdev "net_tap0,iface=$device" -- --forward-mode=io --auto-start --total-num-mbufs=16384 \
      <"$scratch/$client.in" >"$scratch/testpmd" 2>&1 &
    undo stop_pid "$!"
    exec {stay}>"$scratch/$client.in"
    server_wait "testpmd makes its TAP device" ip -n "$client" link show "$device"
    ip -n "$client" link set "$device" address 02:00:00:00:77:02 up
    client_addresses "$client" "$device"
  fi
  case " $* " in
    # Over TLS it says nothing to who has no certificate of its authority.
    *" -Z "*) server_wait "serves over $kind" in_ns "$client" ping -q -c 1 -W 1 "$v4" ;;
    *) server_wait "serves over $kind" in_ns "$client" "$memc" wait "$v4:11211" 1 ;;
  esac
}

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
  counted in_ns "$ns" tests/e2e/edges.py "[$v6]:11211" "[$v6]:11211" --source fd77::2 --label "IPv6: "
  check "ping while captured" in_ns "$ns" ping -q -c 2 -i 0.2 -W 2 "$v4"
  check "IPv6 ping while captured" in_ns "$ns" ping -q -c 2 -i 0.2 -W 2 "$v6"
  capture_stop
  capture_is_clean "$pcap" "$v4" "$v6"
  counted in_ns "$ns" timeout 200 tests/e2e/tagged.py "$device" "$v4" 10.77.0.2

  slap "memcaslap -U at full speed: no wrong value" "$ns" counted -s "$v4:11211" -U -T 1 -c 16 -t 5s
  slap "memcaslap -U -d 10 at full speed: no wrong value" "$ns" counted -s "$v4:11211" -U -T 1 -c 16 -t 2s -d 10
}

# captured FILE N: whether so many datagrams of the service's are in it.
captured() {
  [ "$(tshark -r "$1" -Y 'udp.port == 11211' -T fields -e frame.number 2>/dev/null | wc -l)" -ge "$2" ]
}

# own_capture NS DEVICE SOCKET: what the appliance captures of itself is what the wire carried, each
# frame once, and each worker has its part.
own_capture() {
  local ns=$1 device=$2 socket=$3 seen own=$scratch/own.pcapng log=$scratch/own.log pid file
  seen=$(mktemp -u "${TMPDIR:-/tmp}/gnomon-seen-XXXXXX.pcapng")
  undo rm -f "$seen"
  check "a capture on the wire starts" capture_start "$ns" "$device" "$seen"
  "$gnomon" capture --socket "$socket" --write "$own" 2>"$log" &
  pid=$!
  undo stop_pid "$pid"
  check "gnomon capture starts" wait_for 20 grep -q capturing "$log"
  check "64 clients ask, 8 times each" in_ns "$ns" timeout 120 python3 - "$v4" <<'PYTHON'
import socket, sys
clients = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(64)]
for n in range(8):
    for client in clients:
        client.settimeout(20)
        client.connect((sys.argv[1], 11211))
        client.send(b"\0%c\0\0\0\1\0\0get nobody%d\r\n" % (n, n))
        assert client.recv(2048) == b"\0%c\0\0\0\1\0\0END\r\n" % n
PYTHON
  kill -INT "$pid"
  check "gnomon capture ends" wait "$pid"
  # What dumpcap has not read yet when it is told to stop is lost.
  check "the capture on the wire has all" wait_for 20 captured "$seen" 1024
  capture_stop
  check "it lost nothing" grep -q ', 0 lost' "$log"
  for file in "$own" "$seen"; do
    tshark -r "$file" -Y 'udp.port == 11211' -T fields -e eth.src -e eth.dst -e ip.src -e ip.dst \
      -e udp.srcport -e udp.dstport -e udp.payload 2>/dev/null | sort >"$file.txt"
  done
  undo rm -f "$seen.txt"
  check "each request and each reply is in it" test "$(wc -l <"$own.txt")" -eq 1024
  check "they are those of the wire" diff "$seen.txt" "$own.txt"
  check "each of $workers workers has a part" test \
    "$(tshark -r "$own" -T fields -e frame.interface_name 2>/dev/null | sort -u | wc -l)" -eq "$workers"
}
