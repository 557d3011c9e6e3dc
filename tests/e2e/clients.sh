#!/usr/bin/env bash
# Real client programs and libraries, every verb that each has, over loopback and kernel sockets.
#
#   tests/e2e/clients.sh [--against memcached|gnomon]
#
# Without an option against both, the genuine server first: what the batteries expect must be true
# of it. Each battery stands in tests/e2e/clients, takes HOST:PORT, and may be run alone.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/venv.sh
. tests/e2e/venv.sh
servers=(memcached gnomon)
[ "${1:-}" != --against ] || servers=("$2")
batteries=tests/e2e/clients
# Outside of the source, and kept.
crate=target/clients/cargo

need_netns

check "the libraries in Python" make_venv
check "the crate's battery" cargo build -q --locked --manifest-path "$batteries/memcache_crate/Cargo.toml" --target-dir "$crate"

metrics=127.0.0.1:9150
host=""
netns host

# battery LABEL PROGRAM ARGS...: runs it in the namespace, against $server. None takes this long.
battery() {
  local label="$who," program=$2
  [ -z "$1" ] || label+=" $1:"
  counted in_ns "$host" timeout --foreground 240 "$program" "$server" --label "$label " "${@:3}"
}
# python NAME: a battery in Python, with the libraries at hand.
python() {
  counted in_ns "$host" timeout --foreground 240 \
    "$venv/bin/python" -B "$batteries/$1.py" "$server" --label "$who, ${1%_battery}: "
}

# every_client: each battery in turn; some flush the server.
every_client() {
  python pymemcache_battery
  python python_memcached_battery
  python pylibmc_battery
  python bmemcached_battery
  python aiomcache_battery
  python meta_memcache_battery
  battery Cache::Memcached::Fast "$batteries/cache_memcached_fast.pl"
  battery Dalli "$batteries/dalli.rb"
  battery "" "$crate/debug/memcache-battery"
  battery libmemcached "$batteries/libmemcached_tools.sh"
  battery "" "$batteries/memcached_tool.sh"
  python exporter
}

# load NAME ARGS...: memcaslap for so many operations, every value verified, nothing lost.
load() { slap "$who, memcaslap $1" "$host" strict -s "$server" -T 1 -c 8 -x 40000 "${@:2}"; }

# loads: memcaslap in each protocol and over each transport that it has.
loads() {
  load "over TCP"
  load "over TCP, some with an exptime" -e 0.1
  load "-d 10: multi-get" -d 10
  load "-B: binary" -B
  load "-B -d 10: binary multi-get" -B -d 10
  load "-U: UDP" -U
  # These two abort against memcached, which sends each value as a message of its own.
  if [ "$who" = gnomon ]; then
    load "-U -d 10: multi-get over UDP" -U -d 10
    load "-a -d 10: set by TCP, multi-get by UDP" -a -d 10
  fi
}

# Room for all that is stored: memcaslap takes an evicted item for a lost one.
for who in "${servers[@]}"; do
  case $who in
    memcached)
      server=$genuine
      memcached_start "$host" -m 512
      every_client
      loads
      check "memcached is still there" stop_pid "$memcached_pid"
      ;;
    gnomon)
      server=127.0.0.1:11211
      server_start "$host" -m 512 --metrics "$metrics"
      server_wait "gnomon starts" in_ns "$host" "$memc" wait "$server" 1
      every_client
      server=$metrics python prometheus_battery
      loads
      server_stop
      ;;
    *)
      echo "clients: --against memcached or gnomon, not $who" >&2
      exit 2
      ;;
  esac
done
totals
