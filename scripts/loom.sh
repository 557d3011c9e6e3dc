#!/usr/bin/env bash
# Model checks: every interleaving of the lock-free parts, under loom.
# They build with another cfg, so in a target directory of their own.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3}
exec cargo test -p store -p gpu -p driver-shim --test 'loom_*' -q
