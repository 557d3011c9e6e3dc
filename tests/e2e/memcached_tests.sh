#!/usr/bin/env bash
# The newest memcached's own tests (t/*.t), which start gnomon in its place with the options that they want. Each file
# passes whole, or but for the tests named here, with the reason. Skipped where memcached's source cannot be had.
#
#   tests/e2e/memcached_tests.sh [FILE...]      without .t; default: all
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
need_netns
if ! newest=$(tests/e2e/newest_memcached.sh 2>"$scratch/why"); then
  skip "memcached's own tests" "$(tail -n 1 "$scratch/why")"
  totals
  exit
fi
source=$(dirname "$newest")

# FILE, numbers of the tests that fail (`all`: it is not run), and why.
differs="
64bit                   all     allocates more than there is, by a switch of memcached's debug build
conn-limits             all     limits of memcached's own buffers; --conn-memory is tested by tests/hostile
dyn-maxbytes            all     cache_memlimit does not go beyond -m
expirations             all     moves the clock, by a command of memcached's debug build
issue_42                11      sums up memcached's sizes of classes
issue_67                2,4,8,12 UDP is off there unless -U is given
lru                     all     counts on memcached's sizes of pages and its order of eviction
lru-crawler             all     metadump begins with OK there; memcached-tool takes that for an item
lru-maintainer          all     there is one queue, not hot, warm and cold
metaget                 1       a line without its words is ERROR, as with 1.6.18
restart                 all     there is no second file, and items come back in another form
shutdown                1       the refusal's words are 1.6.18's
slabs-cas               all     moves the pages of classes by memcached's numbers
slabs-mover             all     asks memcached's page mover how far it is
slabs_reassign          all     moves the pages of classes by memcached's numbers
slabs-reassign2         all     counts pages as memcached moves them
slabs-reassign-chunked  all     items are not made of several chunks
stats                   1       there are more rows
udp                     40,54   a request of more than 1,400 bytes over UDP is refused
"

mkdir "$scratch/built" "$scratch/said"
ln -s "$source/t" "$source/timedrun" "$scratch/built/"
cat >"$scratch/built/memcached-debug" <<RUN
#!/bin/sh
# What was built in, the tests find out from the help text.
case "\$*" in
  -h) echo 'unix-socket enable-ssl' ;;
  *) exec "$(realpath "$gnomon")" "\$@" ;;
esac
RUN
chmod 755 "$scratch/built/memcached-debug"

# run NAME: one file of tests to its end; its output, then its status.
run() {
  cd "$scratch/built"
  local status=0
  case $1 in ssl_*) export SSL_TEST=1 ;; esac
  timeout --kill-after=5 100 perl -It/lib "t/$1.t" >"$scratch/said/$1" 2>&1 || status=$?
  echo "status $status" >>"$scratch/said/$1"
}
export -f run
export scratch
names=("$@")
if [ "$#" -eq 0 ]; then
  mapfile -t names < <(cd "$source/t" && basename -s .t -- *.t)
fi
ran=()
for name in "${names[@]}"; do
  read -r _ numbers why < <(grep "^$name " <<<"$differs") || true
  if [ "${numbers:-}" = all ]; then
    echo "differs memcached's t/$name.t: $why"
  else
    ran+=("$name")
  fi
  numbers=""
done
host=""
netns host
printf '%s\n' "${ran[@]}" | in_ns "$host" xargs -P 4 -I{} bash -c 'run {}'
for name in "${ran[@]}"; do
  said=$scratch/said/$name
  read -r _ numbers why < <(grep "^$name " <<<"$differs") || numbers="" why=""
  failures=$(sed -n 's/^not ok \([0-9]*\).*/\1/p' "$said" | paste -sd,)
  planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$said")
  ended=$(grep -cE '^(not )?ok ' "$said" || true)
  if grep -q '^1\.\.0 # SKIP' "$said"; then
    continue
  elif [ "$failures" = "$numbers" ] && [ "$planned" = "$ended" ]; then
    ok "memcached's t/$name.t: $planned tests${why:+; differs in number $numbers: $why}"
  else
    not_ok "memcached's t/$name.t" "$ended of ${planned:-?} ran; failed: ${failures:-none}; $(tail -n 1 "$said")"
    grep -A 8 '^not ok' "$said" | head -n 30 | sed 's/^/        | /' || true
  fi
done
totals
