#!/usr/bin/env bash
# A long soak of what tests/e2e/test_soak.py does for half a minute: on kernel sockets, then on a DPDK
# port in a network namespace. Reports go to target/soak/, as Markdown and JSON.
#
#   SOAK_MINUTES=10 SOAK_RATE=150 SOAK_PORTS="sockets af_packet" SOAK_STRICT_TIME= scripts/soak.sh
#
# SOAK_MINUTES is for each port, after the memory has been filled.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/provision.sh
export SOAK_SECONDS=$((60 * ${SOAK_MINUTES:-10})) SOAK_REPORT=${SOAK_REPORT:-target/soak}
exec scripts/e2e.sh soak --file-seconds 0
