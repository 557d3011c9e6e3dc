#!/usr/bin/env bash
# Checks and measures the GPU of this machine.
#
#   run.sh [DIRECTORY] [OPTION...]          on the GPU; results go to DIRECTORY, by default $OUT or ./results
#   run.sh --simt [DIRECTORY] [OPTION...]   everything in its smallest form, without a GPU
#
# Options are gnomon-gpu-check's: --steps a,b,c; --minutes N; --items N; --tiny (gnomon-gpu-check --help).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
card=(--card cuda)
if [ "${1:-}" = --simt ]; then
  card=(--card simt --tiny --items 2000 --index-items 4000)
  shift
fi
out=${OUT:-results}
if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then
  out=$1
  shift
fi
mkdir -p "$out"

# Where containers have the driver. The loader looks there only when it is told to.
for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
  if [ -d "$dir" ]; then
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir"
  fi
done
driver_is_there() {
  ldconfig -p 2>/dev/null | grep -q 'libcuda\.so' && return
  local dir
  for dir in ${LD_LIBRARY_PATH//:/ } /usr/lib /usr/lib64 /usr/lib/*; do
    if compgen -G "$dir/libcuda.so*" >/dev/null; then return; fi
  done
  return 1
}
if [ "${card[1]}" = cuda ] && ! driver_is_there; then
  echo "gpu-check: there is no NVIDIA driver on this machine (libcuda is not found)." >&2
  echo "gpu-check: run.sh --simt does everything on the processor, in its smallest form." >&2
  exit 1
fi

{
  nvidia-smi || true
  lscpu || true
  uname -a
  cat /sys/kernel/mm/transparent_hugepage/enabled || true
} >"$out/machine.txt" 2>&1
status=0
"$here/gnomon-gpu-check" "${card[@]}" --parity "$here/gnomon-gpu-parity" --out "$out" "$@" \
  >"$out/log.txt" 2>&1 || status=$?
# The goals, and what became of the steps.
awk '/^## / { shown = $2 == "Goals" || $2 == "Steps" } shown && /^\|/' "$out/report.md" || true
[ "$status" -eq 0 ] || echo "gpu-check: something failed; see $out/log.txt and $out/report.md" >&2
exit "$status"
