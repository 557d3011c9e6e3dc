#!/usr/bin/env bash
# Checks and measures the GPU of this machine.
#
#   run.sh [DIRECTORY]          on the GPU; results go to DIRECTORY, by default $OUT or ./results
#   run.sh --simt [DIRECTORY]   everything in its smallest form, without a GPU
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
card=cuda
if [ "${1:-}" = --simt ]; then
  card=simt
  shift
fi
out=${1:-${OUT:-results}}
mkdir -p "$out"

if [ "$card" = cuda ] && ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so' &&
  ! ls /usr/lib*/libcuda.so* /usr/lib/*/libcuda.so* /usr/local/nvidia/lib*/libcuda.so* >/dev/null 2>&1; then
  echo "gpu-check: there is no NVIDIA driver on this machine (libcuda is not found)." >&2
  echo "gpu-check: run.sh --simt does everything on the processor, in its smallest form." >&2
  exit 1
fi

status=0
if [ "$card" = simt ]; then
  "$here/gnomon-gpu-check" --card simt --tiny --items 2000 --parity "$here/gnomon-gpu-parity" \
    --seconds 240,60,30,120 --out "$out" >"$out/log.txt" 2>&1 || status=$?
else
  {
    nvidia-smi || true
    lscpu || true
    uname -a
  } >"$out/machine.txt" 2>&1
  # A small case under NVIDIA's checker first: it finds what a plain run may survive.
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || true)
  if [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck; do
      timeout 60 "$sanitizer" --tool "$tool" --error-exitcode 9 \
        "$here/gnomon-gpu-check" --card cuda --tiny --items 2000 --steps study --seconds 30 \
        --out "$out/$tool" >"$out/$tool.txt" 2>&1 || {
        echo "gpu-check: compute-sanitizer $tool ended with $?; see $out/$tool.txt"
        status=1
      }
      rm -rf "${out:?}/$tool"
    done
  fi
  "$here/gnomon-gpu-check" --card cuda --parity "$here/gnomon-gpu-parity" \
    --seconds 60,110,25,190 --out "$out" >"$out/log.txt" 2>&1 || status=1
fi
tail -n 3 "$out/log.txt"
[ "$status" -eq 0 ] || echo "gpu-check: something failed; see $out/log.txt and $out/report.md" >&2
exit "$status"
