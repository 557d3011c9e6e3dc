#!/usr/bin/env bash
# Attacks on a live server, beside honest clients that look at every byte: tests/hostile at its small size.
#
#   tests/e2e/hostile.sh [FILE...]      names of files in tests/hostile without .py; default: all
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
ulimit -n "$(ulimit -Hn)"
counted tests/hostile/run.py --server "$gnomon" --small "$@"
totals
