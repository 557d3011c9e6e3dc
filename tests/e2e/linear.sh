#!/usr/bin/env bash
# Commands that overlap take effect one at a time: contended histories over TCP, and over TCP and
# UDP together, against the genuine memcached, which must pass too, and against gnomon; there also beside
# kernels that write whole replies; with flushes, and items that expire and are evicted meanwhile.
#
# memcached breaks one promise itself: a `gets`, `gats` or `mg` with flag c that overlaps an `incr`,
# `decr` or `ma` now and then shows the old value with the CAS id of the new one. So it is not asked
# for both in one history.
#
#   LINEAR_HISTORIES=500 tests/e2e/linear.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
need_netns
host=""
netns host
linear=target/release/gnomon-linear
histories=${LINEAR_HISTORIES:-20}
storing=get,gets,gat,gats,set,add,replace,append,prepend,cas,delete,touch
counting=get,gat,set,add,delete,incr,decr,ma,touch
flushing=get,get,gets,gat,gats,set,add,replace,cas,delete,touch,flush-all
# So few changes of so many keys that items expire before they are stored again.
reading=get,get,get,get,get,get,get,get,get,get,get,get,get,get,get,get,gat,touch,set,add,delete
few_changes=(--keys 50000 --operations 800000 --expire --late 2 --verbs)

# judged NAME SERVER ARGS...: passes when every history is linearizable.
judged() {
  local name=$1 server=$2 log=$scratch/linear
  shift 2
  if in_ns "$host" timeout 500 "$linear" --server "$server" "$@" >"$log" 2>&1; then
    ok "$name: $(tail -n 1 "$log")"
  else
    not_ok "$name"
    sed 's/^/        | /' "$log" | tail -n 60
  fi
}

# ended: items have expired or were evicted in the history that was judged last.
ended() {
  local n
  n=$(sed -n 's/ answers show items that had expired.*//p' "$scratch/linear")
  check "$n answers show that items were gone by themselves" [ "${n:-0}" -gt 20 ]
}

genuine=127.0.0.1:11311
ip netns exec "$host" memcached -u nobody -l 127.0.0.1 -p 11311 -U 11311 -t 2 >"$scratch/memcached.log" 2>&1 &
memcached_pid=$!
undo stop_pid "$memcached_pid"
check "memcached answers" in_ns "$host" "$memc" wait "$genuine" 10
judged "memcached: storing" "$genuine" --histories 1 --verbs "$storing"
judged "memcached: counting" "$genuine" --histories 1 --verbs "$counting"
judged "memcached: meta verbs" "$genuine" --histories 1 --verbs get,mg,ms,md
judged "memcached: flushes" "$genuine" --histories 1 --keys 50 --verbs "$flushing"
judged "memcached: expiry" "$genuine" --histories 1 "${few_changes[@]}" "$reading"
ended
judged "memcached: TCP and UDP" "$genuine" --histories 1 --udp-clients 4 --verbs "$storing"
stop_pid "$memcached_pid"

here=127.0.0.1:11211
server_start "$host" -t 2
server_wait "serves with two TCP threads" in_ns "$host" "$memc" wait "$here" 1
judged "TCP" "$here" --histories "$histories"
judged "TCP and UDP on two keys" "$here" --histories 3 --udp-clients 8 --keys 2
judged "flushes" "$here" --histories 2 --udp-clients 4 --keys 50 --verbs "$flushing,flush-prefix"
judged "expiry" "$here" --histories 1 --udp-clients 8 "${few_changes[@]}" "$reading,append,incr"
ended
server_stop

server_start "$host" -t 2 -m 4
server_wait "serves with little memory" in_ns "$host" "$memc" wait "$here" 1
judged "evictions" "$here" --histories 1 --udp-clients 8 --keys 10000 --evict
ended
server_stop

# More gets than changes, so that some of the replies that the kernels wrote are right when they come.
server_start "$host" -t 2 --engine simt --gpu-replies complete --index-cycle 10 --index-every 1
server_wait "serves with whole replies" in_ns "$host" "$memc" wait "$here" 1
judged "whole replies" "$here" --histories 2 --clients 4 --udp-clients 12 --keys 100 \
  --verbs get,get,get,gets,gets,mg,mg,mg,set,cas,incr,decr,append,prepend,add,replace,delete,touch,gat,gats,ms,md,ma
judged "whole replies, flushes" "$here" --histories 1 --clients 4 --udp-clients 12 --keys 50 \
  --verbs "$flushing,get,get,mg,mg,mg,flush-prefix"
judged "whole replies, expiry" "$here" --histories 1 --clients 4 --udp-clients 12 "${few_changes[@]}" \
  "$reading,gets,gets,mg,mg,mg,append,incr"
ended
accepted=$(in_ns "$host" "$memc" tcp "$here" "stats engine" | tr -d '\r' | sed -n 's/^STAT replies_accepted //p')
check "the kernels wrote $accepted of them" [ "$accepted" -gt 2000 ]
server_stop
totals
