#!/usr/bin/env bash
# Makes a container image out of the archive that scripts/dist.sh made, under target/dist:
#
#   gnomon-VERSION-x86_64.oci.tar      podman load -i, docker load -i, skopeo copy oci-archive:
#
# Needs no daemon. The same archive and C library make the same bytes.
#
#   DIST_OUT=target/dist scripts/oci.sh
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch
out=${DIST_OUT:-target/dist}
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
name=gnomon-$version-x86_64
[ -f "$out/$name.tar.gz" ] || { echo "oci: no $out/$name.tar.gz; scripts/dist.sh makes it" >&2; exit 1; }
tar -C "$scratch" -xf "$out/$name.tar.gz"
scripts/dist/oci.py "$scratch/$name" "$version" "$(git rev-parse HEAD)" \
  "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" "$out/$name.oci.tar"
(cd "$out" && sha256sum "$name.oci.tar")
