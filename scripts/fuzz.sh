#!/usr/bin/env bash
# Fuzzes the targets named, or all. The corpora are replayed by `cargo test` as well, without this.
#
#   scripts/fuzz.sh [TARGET...]           with AddressSanitizer, for FUZZ_SECONDS each (60)
#   scripts/fuzz.sh --deep [TARGET...]    without it, FUZZ_RUNS executions each (100,000,000), or as
#                                         many as FUZZ_SECONDS allow
#   scripts/fuzz.sh --distil [TARGET...]  adds what was found and covers new code to the committed
#                                         corpora
#
# What is found stays in fuzz/target/corpus, so that the next run goes on from there.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=
case ${1-} in --deep | --distil) mode=$1 && shift ;; esac
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
# libFuzzer's instrumentation is a nightly flag; the pinned stable compiler has it too.
export RUSTC_BOOTSTRAP=1
# What one run gives back is kept for the next.
export MALLOC_TRIM_THRESHOLD_=$((64 << 20)) MALLOC_TOP_PAD_=$((4 << 20))

# Longest input of a deep run: long enough for whatever a target tells apart but the limit of 2,048
# bytes on a line, which the other runs reach.
declare -A longest=([classify]=256 [meta]=256 [restart]=64 [sequence]=96)

if (($# == 0)); then
  mapfile -t all < <(cargo fuzz list)
  set -- "${all[@]}"
fi
for target in "$@"; do
  found=fuzz/target/corpus/$target
  mkdir -p "$found"
  build=(-s none --no-trace-compares --target-dir fuzz/target/deep)
  flags=(-print_final_stats=1)
  case $target in
    ascii | datagram | meta | udp_frame) flags+=(-dict=fuzz/dictionaries/text) ;;
    binary) flags+=(-dict=fuzz/dictionaries/binary) ;;
  esac
  case $mode in
    --deep)
      echo "== $target, ${FUZZ_RUNS:=100000000} executions"
      flags+=(-max_len="${longest[$target]-512}" -timeout=10 -rss_limit_mb=1024)
      # How often a branch is taken counts for nothing here: noting it takes half of the time.
      flags+=(-use_counters=0 -runs="$FUZZ_RUNS" -max_total_time="${FUZZ_SECONDS:-0}")
      ;;
    --distil)
      echo "== $target, into its corpus"
      cargo fuzz run "${build[@]}" "$target" "fuzz/corpus/$target" "$found" -- -set_cover_merge=1 -use_counters=0
      continue
      ;;
    *)
      echo "== $target, ${FUZZ_SECONDS:=60} s"
      build=()
      flags+=(-max_len=2304 -timeout=5 -rss_limit_mb=2048 -max_total_time="$FUZZ_SECONDS")
      ;;
  esac
  # What it finds goes to the first directory; the committed corpus is only read.
  cargo fuzz run "${build[@]}" "$target" "$found" "fuzz/corpus/$target" -- "${flags[@]}"
done
