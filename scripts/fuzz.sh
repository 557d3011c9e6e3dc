#!/usr/bin/env bash
# Fuzzes each target for FUZZ_SECONDS. The corpora are replayed by `cargo test` as well, without this.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
# libFuzzer's instrumentation is a nightly flag; the pinned stable compiler has it too.
export RUSTC_BOOTSTRAP=1
for target in $(cargo fuzz list); do
  echo "== $target, $seconds s"
  # What it finds goes to the first directory; the committed corpus is only read.
  found=fuzz/target/corpus/$target
  mkdir -p "$found"
  cargo fuzz run "$target" "$found" "fuzz/corpus/$target" -- -max_total_time="$seconds" -max_len=2048 -timeout=1 -rss_limit_mb=512
done
