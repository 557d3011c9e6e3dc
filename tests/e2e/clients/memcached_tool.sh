#!/usr/bin/env bash
# memcached-tool, as memcached's package brings it, in each of its modes.
#
#   memcached_tool.sh HOST:PORT [--label TEXT]
#
# Prints `ok NAME` or `FAILED NAME: why` per check, and exits 1 if any failed. Flushes the server.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch
server=$1
label=${3:-}
# A mode that ends sooner than this or not at all.
tool() { timeout 10 perl /usr/share/memcached/scripts/memcached-tool "$server" "$@" 2>"$scratch/errors"; }

# shows NAME COUNT REGEX MODE...: whether this mode prints COUNT such lines, or more; within 20 s, as
# the server may be counting or crawling.
shows() {
  local name=$1
  shift
  if wait_for 20 printed "$@"; then
    ok "${label}memcached-tool $name"
  else
    not_ok "${label}memcached-tool $name" "fewer than $1 lines like $2"
    cat "$scratch/errors" "$scratch/shown" | head -n 40 | sed 's/^/        | /'
  fi
}
printed() {
  local count=$1 regex=$2
  shift 2
  tool "$@" | tr -d '\r' >"$scratch/shown" || return
  [ "$(grep -Ec "$regex" "$scratch/shown")" -ge "$count" ]
}

# What a client before us sent over UDP without a wait may still lie in a socket, and is stored behind the flush.
sets() { tests/e2e/memc.py tcp "$server" stats | tr -d '\r' | grep '^STAT cmd_set '; }
is_quiet() {
  local before
  before=$(sets) && sleep 0.2 && [ "$before" = "$(sets)" ]
}
wait_for 20 is_quiet || true

# Two items of different classes; flags and an exptime to be seen in a dump.
now=$(date +%s)
tests/e2e/memc.py tcp "$server" flush_all >"$scratch/asked"
tests/e2e/memc.py tcp "$server" "set tool-a 42 $((now + 3600)) 5"$'\r\n'hello >>"$scratch/asked"
tests/e2e/memc.py tcp "$server" "set tool-b 0 0 3000"$'\r\n'"$(printf '%03000d' 7)" >>"$scratch/asked"
check "${label}memcached-tool: two items to look at" test "$(tr -d '\r' <"$scratch/asked" | paste -sd ' ')" = "OK STORED STORED"

row='^ *[0-9]+ +[0-9.]+[BK] +[0-9]+s +[0-9]+ +[1-9][0-9]* +(yes|no) +[0-9]+ +[0-9]+ +[0-9]+$'
shows "display" 2 "$row" display
shows "without a mode" 2 "$row"
shows "stats" 40 '^ +[a-z_0-9]+ +[^ ]+$' stats
# memcached counts items that were flushed until they are reclaimed.
shows "stats: the items" 1 '^ +curr_items +([2-9]|[1-9][0-9]+)$' stats
shows "settings" 30 '^ +[a-z_0-9]+ +[^ ]+$' settings
# Without -o track_sizes it says that it is off.
shows "sizes" 1 '^ +([0-9]+|sizes_status) +([0-9]+|disabled)$' sizes
shows "keys" 2 '^key=tool-[ab] exp=(-1|[0-9]+) la=[0-9]+ cas=[0-9]+ fetch=(yes|no) cls=[0-9]+ size=[0-9]+' keys
shows "keys 1" 1 '^key=tool-[ab] ' keys 1
shows "dump" 1 "^add tool-a 42 $((now + 3600)) 5" dump
shows "dump: an item without an exptime" 1 '^add tool-b 0 0 3000' dump
shows "dump 1" 1 '^add tool-[ab] ' dump 1
[ "$failed" -eq 0 ]
