#!/usr/bin/env bash
# libmemcached's own programs, each in ASCII and, where it can, in the binary protocol.
#
#   libmemcached_tools.sh HOST:PORT [--label TEXT]
#
# Prints `ok NAME` or `FAILED NAME: why` per check, and exits 1 if any failed. Flushes the server.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch
server=$1
label=${3:-}
# What the programs are told about the protocol.
protocol=()

# says NAME TEXT COMMAND...: passes when the command succeeds and this is all that it prints.
says() {
  local name=$1 wanted=$2 got status=0
  shift 2
  got=$("$@" 2>&1) || status=$?
  if [ "$status" -eq 0 ] && [ "$got" = "$wanted" ]; then
    ok "$label$name"
  else
    not_ok "$label$name" "status $status, said '${got:0:300}' instead of '$wanted'"
  fi
}

# refuses NAME TEXT COMMAND...: passes when the command ends in status 1 and its text has TEXT in it.
refuses() {
  local name=$1 wanted=$2 got status=0
  shift 2
  got=$("$@" 2>&1) || status=$?
  if [ "$status" -eq 1 ] && [[ $got == *"$wanted"* ]]; then
    ok "$label$name"
  else
    not_ok "$label$name" "status $status, said '${got:0:300}' instead of '$wanted'"
  fi
}

# becomes NAME COMMAND...: passes when the command succeeds within 20 s.
becomes() {
  local name=$1
  shift
  if wait_for 20 "$@"; then
    ok "$label$name"
  else
    not_ok "$label$name" "not within 20 s"
  fi
}

# with PROGRAM ARGS...: runs it on the server, in the protocol that is being tried. No program takes
# that long, unless it waits for an answer that does not come.
with() {
  local program=$1
  shift
  timeout 60 "$program" --servers="$server" "${protocol[@]}" "$@"
}
# Conditions to wait for, and what a program is to print.
absent() { [[ $(with memccat --verbose "$1" 2>&1) == *"NOT FOUND"* ]]; }
stays() { with memccp "$1" && with memccat "$2"; }
dumped() { [ "$(with memcdump | sort | paste -sd ' ')" = "$1" ]; }
arrived() { [ "$(with memccat "$1")" = "$2" ]; }
# shows REGEX PROGRAM ARGS...: whether the program succeeds and one of its lines matches.
shows() {
  local regex=$1
  shift
  with "$@" >"$scratch/shown" 2>&1 || return
  grep -Eq "$regex" "$scratch/shown" || {
    cat "$scratch/shown"
    return 1
  }
}

# load NAME TEST ARGS...: memcslap from two threads. It ends in status 0 whatever happens, but says so.
load() {
  local name=$1 test=$2
  shift 2
  check "$label$name" shows "^Time to $test +4000 keys" memcslap --test="$test" --execute-number=2000 "$@"
}

# capable FLAG COUNT: memccapable's own tests, of which there are COUNT.
capable() {
  local log=$scratch/capable name result count=0
  timeout 120 memccapable -h "${server%:*}" -p "${server##*:}" -t 5 "$1" >"$log" 2>&1 || true
  while IFS=$'\t' read -r name result; do
    count=$((count + 1))
    if [ "$result" = pass ]; then
      ok "${label}memccapable: $name"
    else
      not_ok "${label}memccapable: $name" "$result"
    fi
  done < <(sed -nE 's/^((ascii|binary) [a-z ]*[a-z]) +\[(.*)\]$/\1\t\3/p' "$log")
  if [ "$count" -ne "$2" ]; then
    not_ok "${label}memccapable $1" "$count tests instead of $2"
    tail -n 5 "$log" | sed 's/^/        | /'
  fi
}

# every_program NAME EXISTS: those that speak both protocols; EXISTS is what they say of a key that is
# there already.
every_program() {
  local as=$1 exists=$2 key=$scratch/first other=$scratch/second
  local first second
  first=$(basename "$key") second=$(basename "$other")
  printf 'one' >"$key"
  printf 'two' >"$other"
  refuses "$as memcrm of nothing" "NOT FOUND" with memcrm --verbose "$first"
  refuses "$as memccp --replace of nothing" "'$first'): NOT " with memccp --replace "$key"
  says "$as memccp, two files" "" with memccp "$key" "$other"
  says "$as memccat" $'one\ntwo' with memccat "$first" "$second"
  refuses "$as memccp --add of what is there" "$exists" with memccp --add "$key"
  printf 'three' >"$key"
  says "$as memccp --replace" "" with memccp --replace --flags=77 "$key"
  says "$as memccat --flags" $'77\nthree' with memccat --flags "$first"
  says "$as memccat --file" "" with memccat --file="$scratch/received" "$first"
  says "$as memccat --file: the same bytes" "" cmp "$key" "$scratch/received"
  says "$as memcexist" "" with memcexist "$first"
  says "$as memcrm" "" with memcrm "$first"
  refuses "$as memcexist of nothing" "NOT FOUND" with memcexist --verbose "$first"
  refuses "$as memccat of nothing" "NOT FOUND" with memccat --verbose "$first"
  refuses "$as memctouch of nothing" "NOT FOUND" with memctouch --verbose --expire=100 "$first"
  says "$as memccp --add --expire" "" with memccp --add --expire=1 "$key"
  says "$as memctouch" "" with memctouch --expire=1 "$second"
  becomes "$as an item stored with an exptime expires" absent "$first"
  becomes "$as a touched item expires" absent "$second"
  head -c 900000 /dev/urandom >"$key"
  says "$as memccp of 900,000 bytes" "" with memccp "$key"
  says "$as memccat of 900,000 bytes" "" with memccat --file="$scratch/received" "$first"
  says "$as the same bytes" "" cmp "$key" "$scratch/received"
  says "$as memcflush" "" with memcflush
  refuses "$as memccat of what was flushed" "NOT FOUND" with memccat --verbose "$first"
  printf 'three' >"$key"
  says "$as memccp after a flush" "" with memccp "$key"
  says "$as memcflush --expire" "" with memcflush --expire=1
  becomes "$as a delayed flush" absent "$first"
  # What is stored within the second of the flush may go with it.
  becomes "$as memccp after a delayed flush" stays "$key" "$first"
  check "$label$as memcstat" shows "^[[:space:]]*curr_items: [0-9]+$" memcstat
  check "$label$as memcstat --server-version" shows ' 1\.' memcstat --server-version
  check "$label$as memcstat slabs" shows '[0-9]+:chunk_size: [0-9]+$' memcstat slabs
  check "$label$as memcstat items" shows 'items:[0-9]+:number: [0-9]+$' memcstat items
  check "$label$as memcstat settings" shows 'maxbytes: [0-9]+$' memcstat settings
  check "$label$as memcstat --analyze" shows 'Analysis' memcstat --analyze
  check "$label$as memcstat --analyze=latency" shows '=> [0-9.]+ seconds' memcstat --analyze=latency --iterations=100
  for test in get mget set; do
    load "$as memcslap --test=$test" "$test" --flush --concurrency=2
  done
  load "$as memcslap --non-blocking" set --concurrency=2 --non-blocking
  load "$as memcslap --noreply" get --concurrency=2 --noreply
}
capable -a 27
capable -b 27
every_program "ASCII:" "NOT STORED"
protocol=(--binary)
every_program "binary:" "DATA EXISTS"
protocol=()

says "memcping" "" with memcping
says "memcflush before a dump" "" with memcflush
printf 'one' >"$scratch/first"
printf 'two' >"$scratch/second"
says "memccp before a dump" "" with memccp "$scratch/first" "$scratch/second"
becomes "memcdump lists both keys" dumped "first second"

# Requests only: this library takes no answers over UDP.
printf 'datagram' >"$scratch/first"
says "memccp --udp" "" with memccp --udp "$scratch/first"
becomes "what memccp --udp stored is there" arrived first datagram
load "memcslap --udp" set --concurrency=2 --udp
[ "$failed" -eq 0 ]
