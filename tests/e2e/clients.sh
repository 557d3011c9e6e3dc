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
go=target/clients/gomemcache-battery

need_netns

check "the libraries in Python" make_venv
check "the crate's battery" cargo build -q --locked --manifest-path "$batteries/memcache_crate/Cargo.toml" --target-dir "$crate"

# The libraries in Go as Debian packages them, from where it installs them: no network is asked.
build_go() {
  GO111MODULE=off GOFLAGS='' GOPATH=/usr/share/gocode GOCACHE=$PWD/target/clients/go \
    go build -o "$go" "./$batteries/gomemcache"
}
node=target/clients/node
# The libraries in JavaScript, made anew only when what they are made from changes. None has a script to run.
make_node() {
  local wanted=$batteries/node/package-lock.json
  if cmp -s "$wanted" "$node/made-from"; then
    return
  fi
  rm -rf "$node" && mkdir -p "$node" && cp "$batteries"/node/package{,-lock}.json "$node" &&
    timeout 120 npm ci --prefix "$node" --ignore-scripts --no-audit --no-fund && cp "$wanted" "$node/made-from"
}
absent=()
# needs NAME WHY COMMAND...: where the command fails, the client NAME is skipped, for this reason.
needs() {
  if ! "${@:3}" >/dev/null 2>&1; then
    skip "$1" "$2"
    absent+=("$1")
  fi
}
# here NAME: whether what it needs is there.
here() { [[ " ${absent[*]} " != *" $1 "* ]]; }

needs gomemcache "no go, or no golang-github-bradfitz-gomemcache-dev" \
  eval 'command -v go && [ -d /usr/share/gocode/src/github.com/bradfitz/gomemcache ]'
! here gomemcache || check "the battery in Go" build_go
needs Node "no node or no npm, or the libraries cannot be fetched" eval 'command -v node && make_node'
needs PHP "no php, or no php-memcached" php -r 'exit(class_exists("Memcached") ? 0 : 1);'

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
# javascript NAME: a battery in JavaScript, with the libraries at hand.
javascript() {
  here Node || return 0
  counted in_ns "$host" timeout --foreground 240 env NODE_PATH="$node/node_modules" \
    "$batteries/node/$1.js" "$server" --label "$who, node, ${1%_battery}: "
}

# every_client: each battery in turn; some flush the server.
every_client() {
  python pymemcache_battery
  python python_memcached_battery
  python pylibmc_battery
  python bmemcached_battery
  python aiomcache_battery
  python meta_memcache_battery
  python django_battery
  python twisted_battery
  battery Cache::Memcached::Fast "$batteries/cache_memcached_fast.pl"
  battery Dalli "$batteries/dalli.rb"
  battery "" "$crate/debug/memcache-battery"
  ! here gomemcache || battery gomemcache "$go"
  ! here PHP || battery PHP "$batteries/memcached.php"
  javascript memjs_battery
  javascript memcached_battery
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
