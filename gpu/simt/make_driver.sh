#!/usr/bin/env bash
# Builds driver.cc, the executor and every kernel into DIRECTORY/libcuda.so.
#
#   gpu/simt/make_driver.sh DIRECTORY
set -euo pipefail
out=$(realpath "$1")
cd "$(dirname "$0")/.."

# The kernels, by the names, structures and threads that their sources give.
{
  sed -nE 's/^KERNEL\((\w+), .*$/extern "C" void gnomon_simt_\1(const void *params);/p' kernels/*.cu
  echo 'static const Kernel KERNELS[] = {'
  for ptx in ptx/*.ptx; do
    local=$(sed -nE 's/.*__local_depot0\[([0-9]+)\];$/\1/p' "$ptx")
    sed -nE 's/^\.visible \.entry (\w+)\($/\1/p; s/.*_param_0\[([0-9]+)\]$/\1/p; s/^\.maxntid ([0-9]+), 1, 1$/\1/p' "$ptx" |
      while read -r name && read -r bytes && read -r threads; do
        case $name in serve_* | micro_ping) stays=true ;; *) stays=false ;; esac
        echo "  {\"$name\", gnomon_simt_$name, $bytes, $threads, ${local:-0}, $stays},"
      done
  done
  echo '};'
} >"$out/driver_kernels.h"

compile=(g++ -std=c++20 -O1 -fPIC -fno-strict-aliasing -w -I. -I"$out" -c)
objects=()
for source in kernels/*.cu simt/executor.cc simt/machine.cc simt/watch.cc simt/late.cc simt/driver.cc; do
  object=$out/$(basename "$source").o
  "${compile[@]}" -x c++ "$source" -o "$object"
  objects+=("$object")
done
g++ -shared -Wl,-z,defs -Wl,-soname,libcuda.so -o "$out/libcuda.so" "${objects[@]}" -pthread
