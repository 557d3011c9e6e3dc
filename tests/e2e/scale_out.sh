#!/usr/bin/env bash
# Several appliances behind nutcracker, libmemcached and pymemcache, set up as docs/scale-out.md
# shows: one is lost and comes back, one is cut off, a fourth comes. See scale_out/drill.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/venv.sh
. tests/e2e/venv.sh
need_netns
check "the libraries in Python" make_venv

# One switch, with the clients at it; each appliance in a namespace of its own behind a cable.
client=""
netns client
ip -n "$client" link add br0 type bridge
ip -n "$client" addr add 10.0.0.1/24 dev br0
ip -n "$client" link set br0 up
appliances=()
for n in 1 2 3 4; do
  appliance=""
  netns "appliance$n"
  name="appliance$n"
  appliance=${!name}
  ip -n "$client" link add "port$n" type veth peer name eth0 netns "$appliance"
  ip -n "$client" link set "port$n" master br0 up
  ip -n "$appliance" addr add "10.0.0.1$n/24" dev eth0
  ip -n "$appliance" link set eth0 up
  appliances+=("$appliance")
done
counted in_ns "$client" timeout --foreground 560 "$venv/bin/python" -B tests/e2e/scale_out/drill.py "${appliances[@]}"
totals
