#!/usr/bin/env bash
# Real clients against a server whose requests go through the GPU's kernels, run on the CPU: every
# way of getting batches there, both indexes, and whole replies.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh

need_netns
host=""
netns host
server=127.0.0.1:11211

# fact NAME: what `stats engine` tells.
fact() {
  in_ns "$host" "$memc" tcp "$server" "stats engine" | tr -d '\r' | sed -n "s/^STAT $1 //p"
}

# stat NAME: what `stats` tells.
stat() {
  in_ns "$host" "$memc" tcp "$server" stats | tr -d '\r' | sed -n "s/^STAT $1 //p"
}

# used: hints of the card's own were right, nothing but writes went by the CPU, and nothing was lost.
used() {
  [ "$(fact hints_right)" -gt "$(fact gpu_missed)" ] && [ "$(fact gpu_requests)" -gt 1000 ] &&
    [ "$(fact cpu_requests)" -le "$(stat cmd_set)" ] &&
    [ "$(fact gpu_lost)" -eq 0 ] && [ "$(fact gpu_state)" = used ]
}

# gets: what was stored is found as a plain get asks for it, at once and from the index. (memcaslap
# puts a blank behind each key, which is the strict parser's business.)
gets() {
  local n
  in_ns "$host" "$memc" tcp "$server" $'set key 3 0 5\r\nvalue' >/dev/null
  for n in $(seq 20); do
    in_ns "$host" "$memc" udp "$server" "get key" | grep -q "^VALUE key 3 5" || return 1
  done
}

# load NAME ARGS...: memcaslap, every value verified, nothing lost.
load() { slap "$who, memcaslap $1" "$host" strict -s "$server" -T 1 -c 8 -x 3000 "${@:2}"; }

for args in "launch setassoc" "graph cuckoo" "persistent setassoc"; do
  read -r mode index <<<"$args"
  who="$mode, $index"
  server_start "$host" -m 128 --engine simt --gpu-mode "$mode" --gpu-index "$index" --gpu-verify-ratio 8
  server_wait "$who: gnomon starts" in_ns "$host" "$memc" wait "$server" 1
  load "-U: UDP" -U
  load "-U -d 10: multi-get over UDP" -U -d 10
  load "-a -d 10: set by TCP, multi-get by UDP" -a -d 10
  load "-B: binary" -B
  check "$who: plain gets" gets
  check "$who: the kernels did it" used
  server_stop
done

# asks REQUEST REPLY: the same reply each time, by the CPU, which asks for it, and then by the kernels, but for one in 32.
asks() {
  local n
  for n in $(seq 12); do
    [ "$(in_ns "$host" "$memc" udp "$server" "$1" | tr -d '\r')" = "$2" ] || return 1
  done
}

# whole_replies: the kernels wrote nearly all of what was asked for, and nothing was lost.
whole_replies() {
  [ "$(fact replies_accepted)" -gt 34 ] && [ "$(fact gpu_lost)" -eq 0 ] && [ "$(fact gpu_state)" = used ]
}

for mode in launch graph persistent; do
  who="$mode, whole replies"
  server_start "$host" -m 128 --engine simt --gpu-mode "$mode" --gpu-replies complete --gpu-verify-ratio 8
  server_wait "$who: gnomon starts" in_ns "$host" "$memc" wait "$server" 1
  load "-a -d 10: set by TCP, multi-get by UDP" -a -d 10
  in_ns "$host" "$memc" tcp "$server" $'set key 3 0 5\r\nvalue\r\nset other 0 0 1\r\nx' >/dev/null
  check "$who: get" asks "get key" $'VALUE key 3 5\nvalue\nEND'
  check "$who: get of two" asks "get key other" $'VALUE key 3 5\nvalue\nVALUE other 0 1\nx\nEND'
  check "$who: mg" asks "mg key v f" $'VA 5 f3\nvalue'
  check "$who: mg without a value" asks "mg other k s t" $'HD kother s1 t-1'
  check "$who: the kernels wrote them" whole_replies
  server_stop
done
totals
