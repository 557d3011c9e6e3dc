#!/usr/bin/env bash
# Who is trusted, who is only allowed, and who is neither: three addresses of one client, at the
# other end of a veth cable through DPDK's af_packet.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
need_netns
server="" client=""
netns server
netns client
veth_pair "$server" "$client"
client_addresses "$client" wire1
trusted=10.77.0.2 allowed=10.78.0.2 allowed6=fd78::2 stranger=10.79.0.2
ip -n "$client" addr add "$allowed/32" dev wire1
ip -n "$client" addr add "$stranger/32" dev wire1
ip -n "$client" addr add "$allowed6/128" dev wire1 nodad

# ask SOURCE SERVER REQUEST: the reply, or nothing.
ask() {
  in_ns "$client" "$memc" udp "$2" "$3" --source "$1" 2>/dev/null || true
}
# says NAME WANT SOURCE SERVER REQUEST: whether the reply begins with WANT; nothing for no reply.
says() {
  local name=$1 want=$2 got
  shift 2
  got=$(ask "$@")
  if [ -z "$want$got" ] || { [ -n "$want" ] && [[ $got == "$want"* ]]; }; then
    ok "$name"
  else
    not_ok "$name" "wanted '$want', got '${got:0:200}'"
  fi
}
# reported NAME FILTER: whether the last report, as JSON, is as the filter says.
reported() {
  check "$1" python3 -c 'import json, sys
report = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{\"event\":\"report\"")][-1]
assert eval(sys.argv[2]), report' "$server_log" "$2"
}

# over_tcp SOURCE: what it is answered over TCP.
over_tcp() {
  in_ns "$client" python3 - "$1" "$v4" <<'PYTHON'
import socket, sys

try:
    with socket.create_connection((sys.argv[2], 11211), timeout=3, source_address=(sys.argv[1], 0)) as s:
        s.sendall(b"get small\r\n")
        print(s.recv(100).decode().split()[0])
except TimeoutError:
    print("nothing")
PYTHON
}
served_over_tcp() { [ "$(over_tcp "$1")" = "$2" ]; }
# The kernel has no way back to them.
by_workers() { [ "${GNOMON_TCP:-worker}" = worker ]; }

allow=(--allow "10.77.0.0/24,10.78.0.0/24,fd77::/64,fd78::/64")
serve() {
  server_start "$server" --json --port "net_af_packet0,iface=wire0,qpairs=${#cpus[@]}" \
    --ip "$v4/24" --ip "$v6/64" --cores "$cores" "${allow[@]}" "$@"
  server_wait "serves with ${*:-the default limits}" in_ns "$client" "$memc" wait "$v4:11211" 1
  in_ns "$client" "$memc" tcp "$v4:11211" $'set big 0 0 5000\r\n'"$(printf '%05000d' 7)" >/dev/null
  in_ns "$client" "$memc" tcp "$v4:11211" $'set small 0 0 5\r\nhello' >/dev/null
}
refusal="SERVER_ERROR too large, use TCP"

serve
says "trusted: a small value" "VALUE small 0 5" "$trusted" "$v4:11211" "get small"
says "trusted: a large value" "VALUE big 0 5000" "$trusted" "$v4:11211" "get big"
says "allowed: a small value" "VALUE small 0 5" "$allowed" "$v4:11211" "get small"
says "allowed: a large value is refused" "$refusal" "$allowed" "$v4:11211" "get big"
says "allowed, IPv6: a small value" "VALUE small 0 5" "$allowed6" "[$v6]:11211" "get small"
says "allowed, IPv6: a large value is refused" "$refusal" "$allowed6" "[$v6]:11211" "get big"
says "allowed: many keys are refused" "$refusal" "$allowed" "$v4:11211" "get small small small small small"
says "a stranger gets no answer" "" "$stranger" "$v4:11211" "get small"
slap "trusted: memcaslap -U runs clean beside them" "$client" counted -s "$v4:11211" -U -T 1 -c 8 -t 2s
server_stop
reported "three replies were refused" 'report["amplification_refused"] == 3'
reported "the stranger was dropped, and nobody for a limit" 'report["dropped"].pop("source_not_allowed") == 1 and not [
  reason for reason in report["dropped"] if reason.startswith("rate_") or reason == "amplification"]'
reported "the exception path tells what it did" 'report["ports"][0]["side_door"]["written"] > 0'

# At factor 1 not even the refusal may be sent.
serve --amp-factor 1 --rate-limit 20 --rate-limit-ping 10
says "factor 1: no reply fits" "" "$allowed" "$v4:11211" "get big"
says "factor 1: a trusted source does not care" "VALUE big 0 5000" "$trusted" "$v4:11211" "get big"
if by_workers; then
  check "allowed: served over TCP" served_over_tcp "$allowed" VALUE
  check "a stranger is not served over TCP" served_over_tcp "$stranger" nothing
fi
# Ten at once, then ten in a second; a hundred in half a second are more than both.
in_ns "$client" ping -q -c 100 -i 0.005 -W 1 "$v4" >"$scratch/ping" 2>&1 || true
answered=$(sed -n 's/.* \([0-9]*\) received.*/\1/p' "$scratch/ping")
check "pings are answered at their rate ($answered of 100)" [ "$((answered >= 10 && answered < 100))" -eq 1 ]
check "the neighbours still find the server" in_ns "$client" sh -c \
  "ip neigh flush dev wire1; $memc wait $v4:11211 3"
in_ns "$client" tests/e2e/memc.py flood "$v4:11211" "get small" 2000 --source "$allowed"
server_stop
reported "the reply that did not fit is counted" 'report["dropped"]["amplification"] >= 1'
reported "pings above the rate are counted" 'report["dropped"]["rate_echo"] > 0'
reported "requests above the rate are counted" 'report["dropped"]["rate_source"] > 0'

# Where none are named, TCP is for everybody.
allow=()
serve
says "without --allow: a stranger gets no answer over UDP" "" "$stranger" "$v4:11211" "get small"
! by_workers || check "without --allow: a stranger is served over TCP" served_over_tcp "$stranger" VALUE
server_stop
totals
