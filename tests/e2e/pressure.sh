#!/usr/bin/env bash
# Few large values that many change while others read them, sizes that change, pages on the move: nothing is
# refused, nothing is lost. On the machine's own loopback, at ports that are free.
#
#   tests/e2e/pressure.sh [LOAD...]     PRESSURE_SECONDS for each load (5); `pressure.py list` names them
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
export GNOMON=$gnomon
# Those that wait for a minute or more run when they are named.
loads=("$@")
[ "$#" -gt 0 ] || mapfile -t loads < <(tests/e2e/pressure.py list | grep -vE -- '-(20|75)$')
counted tests/e2e/pressure.py --seconds "${PRESSURE_SECONDS:-5}" "${loads[@]}"
totals
