#!/usr/bin/env bash
# Fault drills: what must not kill a running gnomon is done to it, one kind at a time. docs/drills.md
# lists them, and is compared with what is run.
#
#   tests/e2e/drills.sh [KIND [NAME...]]     KIND: process, wire or tests; default: all
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
kind=${1:-all}
shift || true
export GNOMON=$gnomon
drills=tests/e2e/drills/run.py

check "wrong replies are noticed" "$drills" judge
"$drills" table >"$scratch/drills.md"
check "docs/drills.md lists what is run" diff -u docs/drills.md "$scratch/drills.md"
grep -oE '`(gnomon|memcached)_[a-z_]+' docs/bad-days.md | sort -u >"$scratch/named"
grep -oE '`(gnomon|memcached)_[a-z_]+' docs/metrics.md | sort -u >"$scratch/known"
check "docs/bad-days.md names metrics that there are" sh -c "! comm -23 '$scratch/named' '$scratch/known' | grep ."

if [ "$kind" = all ] || [ "$kind" = tests ]; then
  counted "$drills" tests "$@"
fi
if [ "$kind" = tests ]; then
  totals
  exit
fi
need_netns
server="" client=""
netns server
netns client
if [ "$kind" != wire ]; then
  counted in_ns "$client" "$drills" process "$@"
fi
if [ "$kind" != process ]; then
  veth_pair "$server" "$client"
  client_addresses "$client" wire1
  counted in_ns "$client" "$drills" wire "$server" "$client" "$@"
fi
totals
