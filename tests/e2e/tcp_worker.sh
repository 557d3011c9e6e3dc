#!/usr/bin/env bash
# TCP served by the workers: real client programs and libraries, with the kernel's TCP at the other end
# of a wire, over DPDK's net_tap and af_packet.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/venv.sh
. tests/e2e/venv.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
batteries=tests/e2e/clients
need_netns
check "the libraries in Python" make_venv

# python NS PORT NAME: a battery in Python, with the libraries at hand.
python() {
  counted in_ns "$1" timeout --foreground 240 \
    "$venv/bin/python" -B "$batteries/$3_battery.py" "$v4:11211" --label "$2, $3: "
}

# batteries NS PORT: each client in turn, and then both directions of a bad wire.
batteries() {
  local ns=$1 port=$2 name
  for name in pymemcache python_memcached pylibmc bmemcached aiomcache; do
    python "$ns" "$port" "$name"
  done
  counted in_ns "$ns" timeout --foreground 240 "$batteries/libmemcached_tools.sh" "$v4:11211" --label "$port, "
  slap "$port, memcaslap over TCP: no wrong value" "$ns" counted -s "$v4:11211" -T 1 -c 16 -t 3s
  slap "$port, memcaslap -B -d 10 over TCP" "$ns" counted -s "$v4:11211" -B -T 1 -c 16 -t 2s -d 10
  check "$port, long values over IPv6" in_ns "$ns" timeout 60 python3 - "$v6" <<'PYTHON'
import os, socket, sys
client = socket.create_connection((sys.argv[1], 11211), 20)
reader = client.makefile("rb")
for size in (1, 1428, 20_000, 1_000_000):
    value = os.urandom(size)
    client.sendall(b"set k 0 0 %d\r\n%s\r\n" % (size, value))
    assert reader.readline() == b"STORED\r\n"
    client.sendall(b"get k\r\n" * 3)
    for _ in range(3):
        assert reader.readline() == b"VALUE k 0 %d\r\n" % size
        assert reader.read(size + 2) == value + b"\r\n"
        assert reader.readline() == b"END\r\n"
PYTHON
  check "$port, stats know the connection" in_ns "$ns" timeout 20 python3 - "$v4" <<'PYTHON'
import socket, sys
client = socket.create_connection((sys.argv[1], 11211), 10)
own = "tcp:%s:%d" % client.getsockname()
def page(name):
    client.sendall(b"stats %s\r\n" % name)
    text = b""
    while not text.endswith(b"END\r\n"):
        text += client.recv(65536)
    return text.decode()
assert own in page(b"conns"), page(b"conns")
assert "STAT curr_connections 0\r" not in page(b""), page(b"")
PYTHON
}

server="" client=""
netns server
netns client
server_start "$server" --port net_tap0,iface=gtap0 --ip "$v4/24" --ip "$v6/64" --cores "$cores" --tcp worker -m 256
server_wait "makes its TAP device" ip -n "$server" link show gtap0
server_wait "is ready" grep -qi ready "$server_log"
ip -n "$server" link set gtap0 netns "$client"
ip -n "$client" link set gtap0 address 02:00:00:00:77:02 up
client_addresses "$client" gtap0
server_wait "serves over net_tap" in_ns "$client" "$memc" wait "$v4:11211" 1
batteries "$client" net_tap
server_stop

server2="" client2=""
netns server2
netns client2
veth_pair "$server2" "$client2"
client_addresses "$client2" wire1
server_start "$server2" --port "net_af_packet0,iface=wire0,qpairs=${#cpus[@]}" \
  --ip "$v4/24" --ip "$v6/64" --cores "$cores" --tcp worker -m 256
server_wait "serves over af_packet" in_ns "$client2" "$memc" wait "$v4:11211" 1
batteries "$client2" af_packet
server_stop
totals
