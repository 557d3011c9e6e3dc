#!/usr/bin/env bash
# gnomon beside the newest memcached that can be had: random conversations with the flags that Debian's older one has not,
# and statistics. Skipped where its source cannot be had, or is of a release that nobody has read yet.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
need_netns
if ! newest=$(tests/e2e/newest_memcached.sh 2>"$scratch/why"); then
  skip "the newest memcached" "$(tail -n 1 "$scratch/why")"
  totals
  exit
fi
read_up_to=1.6.45
version=$("$newest" --version)
version=${version#memcached }
if [ "$(printf '%s\n' "$version" "$read_up_to" | sort -V | tail -n 1)" != "$read_up_to" ]; then
  skip "the newest memcached" "it is $version now: read what is new after $read_up_to, then the number in newest.sh"
  totals
  exit
fi
host=""
netns host
here=127.0.0.1:11211

# With one thread it answers datagrams in their order.
GENUINE=$newest memcached_start "$host" -m 512 -t 1
server_start "$host" -m 512
server_wait "starts beside memcached $version" in_ns "$host" "$memc" wait "$here" 1
counted in_ns "$host" tests/e2e/stats_parity.py "$genuine" "$here"
counted in_ns "$host" tests/e2e/differential.py "$genuine" "$here" --count "${CONVERSATIONS:-10000}"
server_stop
totals
