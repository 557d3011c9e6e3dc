#!/usr/bin/env bash
# Clients that make a server hold memory, at a small size: tests/hostile/conn_memory.py. On the machine's own
# loopback, at ports that are free.
#
#   tests/e2e/conn_memory.sh [ATTACK...]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
counted tests/hostile/conn_memory.py --server "$gnomon" --small "$@"
totals
