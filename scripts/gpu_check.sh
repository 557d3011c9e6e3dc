#!/usr/bin/env bash
# Builds target/gpu-check/: all that a machine with an NVIDIA driver needs to check and measure its
# GPU with. No Rust, DPDK, CUDA toolkit or network is needed there.
#
#   scripts/gpu_check.sh [--dev]    with --dev not optimised: built sooner, to test the bundle itself
set -euo pipefail
cd "$(dirname "$0")/.."

bundle=target/gpu-check built=target/release profile=(--release)
if [ "${1:-}" = --dev ]; then
  built=target/debug profile=()
fi
rm -rf "$bundle"
mkdir -p "$bundle"

# The kernels' tests are a program too. Both at once, so that what they share is built once.
parity=$(cargo build "${profile[@]}" -q -p tools -p dataplane --no-default-features \
  --bin gnomon-gpu-check --test simt_parity --message-format=json |
  sed -nE 's/.*"name":"simt_parity".*"executable":"([^"]+)".*/\1/p' | tail -n 1)
cp $built/gnomon-gpu-check "$bundle/"
cp "$parity" "$bundle/gnomon-gpu-parity"
strip "$bundle/gnomon-gpu-check" "$bundle/gnomon-gpu-parity"
cp -r fuzz/corpus "$bundle/corpus"
cp scripts/gpu_check/run.sh scripts/gpu_check/README "$bundle/"

# Only what every Linux has. The C++ library is needed by the executor, and is checked for too.
for program in "$bundle/gnomon-gpu-check" "$bundle/gnomon-gpu-parity"; do
  strange=$(ldd "$program" | awk '{ print $1 }' |
    grep -vE '^(linux-vdso|libc|libm|libgcc_s|libpthread|libdl|librt|libstdc\+\+)\.so|^/lib64/ld-linux' || true)
  if [ -n "$strange" ]; then
    echo "gpu-check: $program needs $strange, which may not be there" >&2
    exit 1
  fi
done

bytes=$(du -sb "$bundle" | cut -f 1)
if [ "$bytes" -ge $((64 << 20)) ]; then
  echo "gpu-check: $bundle has $bytes bytes, and must have fewer than 64 MiB" >&2
  exit 1
fi
echo "$bundle: $((bytes >> 20)) MiB; on the machine with the GPU: run.sh DIRECTORY"
