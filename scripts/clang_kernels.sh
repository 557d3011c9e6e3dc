#!/usr/bin/env bash
# A second compiler for the kernels: clang compiles each as CUDA, with all its warnings, and
# clang-tidy looks for what is often a bug. No toolkit and no GPU is needed: gpu/clang/cuda.h declares
# CUDA's names.
#
#   scripts/clang_kernels.sh [DIRECTORY]      instead of gpu/kernels
#
# Prints what they say and exits 1, or prints how many kernels passed.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
cd "${1:-$repo/gpu/kernels}"

# Of this version alone: -Weverything is more with each.
compiler=clang++-19 tidy=clang-tidy-19
cuda=(-x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_75 -std=c++20
  -include "$repo/gpu/clang/cuda.h")
warnings=(-Werror -Weverything)
# Compatibility with languages that the kernels are not written in.
warnings+=(-Wno-c++98-compat -Wno-c++98-compat-pedantic)
# What kernels are: code in headers, structures of a given layout, pointers into packets, CUDA's names.
warnings+=(-Wno-missing-prototypes -Wno-padded -Wno-unsafe-buffer-usage -Wno-reserved-identifier
  -Wno-reserved-macro-identifier -Wno-undefined-func-template)
# Conditions without branches, on purpose.
warnings+=(-Wno-bitwise-instead-of-logical)
# What is not a bug here: CUDA's names, and arguments of one type (all are u32). Products of numbers of
# 32 bits are bounded by a block's shared memory or by the sizes that the host tells.
checks='-*,bugprone-*,-bugprone-reserved-identifier,-bugprone-easily-swappable-parameters'
checks+=',-bugprone-implicit-widening-of-multiplication-result,-bugprone-branch-clone'

for program in "$compiler" "$tidy"; do
  command -v "$program" >/dev/null && continue
  echo "there is no $program: scripts/provision.sh installs it" >&2
  exit 1
done

passed=0 failed=0
for kernel in *.cu; do
  status=0
  "$compiler" "${cuda[@]}" "${warnings[@]}" -O1 -S -o /dev/null "$kernel" || status=1
  "$tidy" --quiet --warnings-as-errors='*' --checks="$checks" --header-filter='.*' "$kernel" -- \
    "${cuda[@]}" 2>/dev/null || status=1
  if [ "$status" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "clang: $passed kernels passed, $failed failed"
[ "$failed" -eq 0 ]
