#!/usr/bin/env bash
# Fuzzes the targets named, or all. The corpora are replayed by `cargo test` as well, without this.
#
#   scripts/fuzz.sh [TARGET...]           with AddressSanitizer, for FUZZ_SECONDS each (60)
#   scripts/fuzz.sh --deep [TARGET...]    without it, FUZZ_RUNS executions each (100,000,000), or as
#                                         many as FUZZ_SECONDS allow
#   scripts/fuzz.sh --brief [TARGET...]   as deep, but the same few thousand executions each time: that
#                                         the targets link, run, and find nothing near their corpora
#   scripts/fuzz.sh --distil [TARGET...]  adds what was found and covers new code to the committed
#                                         corpora
#
# What is found stays in fuzz/target/corpus, so that the next run goes on from there; of a brief run
# nothing stays.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
mode=
case ${1-} in --deep | --brief | --distil) mode=$1 && shift ;; esac
if (($# == 0)); then
  mapfile -t all < <(basename -s .rs fuzz/targets/*.rs)
  set -- "${all[@]}"
fi

# Longest input of a deep run: long enough for whatever a target tells apart but the limit of 2,048
# bytes on a line, which the other runs reach. Of `sequence`, 15 commands; of
# `segments`, 20 segments; of `tls`, all steps that there can be.
declare -A longest=([classify]=256 [meta]=256 [restart]=64 [segments]=163 [sequence]=48 [tls]=256)

# libFuzzer's instrumentation, an edge of the control flow a counter, is a nightly flag; the pinned
# stable compiler has it too.
export RUSTC_BOOTSTRAP=1
coverage=(level=4 inline-8bit-counters pc-table)
# Two branches stay two.
rustflags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-simplifycfg-branch-fold-threshold=0"
if [ "$mode" = --brief ]; then
  # They run for seconds, and are built for minutes.
  target_dir=fuzz/target/brief
  export CARGO_PROFILE_RELEASE_OPT_LEVEL=1
elif [ -n "$mode" ]; then
  target_dir=fuzz/target/deep
else
  target_dir=fuzz/target/asan
  # Comparisons are noted: what was compared comes up in inputs.
  coverage+=(trace-compares)
  rustflags+=" -Zsanitizer=address"
  export ASAN_OPTIONS=detect_odr_violation=0
fi
rustflags+=$(printf ' -Cllvm-args=-sanitizer-coverage-%s' "${coverage[@]}")
# Named, so that the flags are not for what runs while it builds.
triple=$(rustc -vV | sed -n 's/^host: //p')
programs=$target_dir/$triple/release

build() {
  RUSTFLAGS=$rustflags cargo build -q --release --manifest-path fuzz/Cargo.toml --target "$triple" \
    --target-dir "$target_dir" "${@/#/--bin=}"
}

# fuzz TARGET FOUND FLAG...: what it finds goes to the first directory; the committed corpus is only
# read.
fuzz() {
  local target=$1 found=$2
  shift 2
  mkdir -p "$found" "fuzz/artifacts/$target"
  # What one execution gives back is kept for the next.
  MALLOC_TRIM_THRESHOLD_=$((64 << 20)) MALLOC_TOP_PAD_=$((4 << 20)) "$programs/$target" \
    -artifact_prefix="fuzz/artifacts/$target/" "$@" "$found" "fuzz/corpus/$target"
}

if [ "$mode" = --brief ]; then
  make_scratch
  check "the fuzz targets link" build "$@"
  ((failed == 0)) || totals
else
  build "$@"
fi
# How often a branch is taken counts for nothing here: noting it takes half of the time.
fast=(-use_counters=0)
for target in "$@"; do
  flags=(-print_final_stats=1)
  case $target in
    ascii | datagram | meta | udp_frame) flags+=(-dict=fuzz/dictionaries/text) ;;
    binary) flags+=(-dict=fuzz/dictionaries/binary) ;;
  esac
  found=fuzz/target/corpus/$target
  case $mode in
    --brief)
      flags+=("${fast[@]}" -max_len="${longest[$target]-512}" -timeout=60 -seed=1 -runs=5000)
      check "$target, 5,000 executions" fuzz "$target" "$scratch/$target" "${flags[@]}"
      ;;
    --deep)
      echo "== $target, ${FUZZ_RUNS:=100000000} executions"
      flags+=("${fast[@]}" -max_len="${longest[$target]-512}" -timeout=10 -rss_limit_mb=1024)
      # Nor is it reckoned how rare each branch is, or which of many inputs is the shortest.
      flags+=(-entropic=0 -reduce_inputs=0 -runs="$FUZZ_RUNS" -max_total_time="${FUZZ_SECONDS:-0}")
      fuzz "$target" "$found" "${flags[@]}"
      ;;
    --distil)
      echo "== $target, into its corpus"
      mkdir -p "$found"
      "$programs/$target" "${fast[@]}" -set_cover_merge=1 "fuzz/corpus/$target" "$found"
      ;;
    *)
      echo "== $target, ${FUZZ_SECONDS:=60} s"
      flags+=(-max_len=2304 -timeout=5 -rss_limit_mb=2048 -max_total_time="$FUZZ_SECONDS")
      fuzz "$target" "$found" "${flags[@]}"
      ;;
  esac
done
[ "$mode" != --brief ] || totals
