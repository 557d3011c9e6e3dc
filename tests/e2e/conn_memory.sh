#!/usr/bin/env bash
# Clients that make a server hold memory, at a small size: tests/hostile/conn_memory.py. On the machine's own
# loopback, at ports that are free.
#
#   tests/e2e/conn_memory.sh [ATTACK...]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
attacks=("$@")
# That on address space runs when it is named: it finds what is not mended yet.
[ "$#" -gt 0 ] || attacks=(partial-sets partial-large-sets unread-gets one-byte)
counted tests/hostile/conn_memory.py --server "$gnomon" --small "${attacks[@]}"
totals
