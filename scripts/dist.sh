#!/usr/bin/env bash
# Makes the Debian package, its debug symbols and the relocatable archive, all under target/dist:
#
#   gnomon_VERSION_amd64.deb  gnomon-dbgsym_VERSION_amd64.deb  gnomon-VERSION-x86_64.tar.gz
#
# The same commit, tool chain and DPDK make the same bytes, whatever the directory, the user and the
# day: paths are mapped away, and the commit's time stands for the time (SOURCE_DATE_EPOCH wins).
#
#   DIST_OUT=target/dist scripts/dist.sh
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
scripts/provision.sh dist
make_scratch
out=${DIST_OUT:-target/dist}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
[ "$architecture" = amd64 ] || { echo "dist: made for amd64, not for $architecture" >&2; exit 1; }

# The programs, and a line on each for its manual page.
declare -A programs=(
  [gnomon]="a kernel-bypass, memcached-compatible key-value appliance"
  [gnomon-replay]="replay a workload against a server and verify every reply"
  [gnomon-pcapgen]="write a workload of memcached requests as a pcap file"
  [gnomon-study]="studies of hit rates, speed and the path of a request"
  [gnomon-linear]="check that overlapping commands take effect one at a time"
)

REPRODUCIBLE=yes release_build
built=target/release

# --- what the package and the archive share, laid out as under /usr --------------------------------

usr=$scratch/usr
debug=$scratch/debug
mkdir -p "$usr"/{bin,share/man/man1,share/gnomon/dashboards,share/doc/gnomon} \
  "$usr"/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
for program in "${!programs[@]}"; do
  whole=$built/$program
  id=$(readelf -n "$whole" | sed -n 's/.*Build ID: //p')
  [ -n "$id" ] || { echo "dist: $program has no build id" >&2; exit 1; }
  symbols=$debug/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
  mkdir -p "$(dirname "$symbols")"
  objcopy --only-keep-debug --compress-debug-sections "$whole" "$symbols"
  chmod 644 "$symbols"
  strip --strip-unneeded --remove-section=.comment --remove-section=.note \
    -o "$usr/bin/$program" "$whole"
  if [ "$program" != gnomon ]; then
    help2man --no-info --no-discard-stderr --section=1 --name="${programs[$program]}" \
      --version-string="$version" "$whole" >"$usr/share/man/man1/$program.1"
  fi
done
gnomon=$built/gnomon
"$gnomon" man "$usr/share/man/man1"
"$gnomon" completions bash >"$usr/share/bash-completion/completions/gnomon"
"$gnomon" completions zsh >"$usr/share/zsh/vendor-completions/_gnomon"
"$gnomon" completions fish >"$usr/share/fish/vendor_completions.d/gnomon.fish"
cp appliance/dashboards/gnomon.json "$usr/share/gnomon/dashboards/"
cp -r docs/. scripts/dist/copyright "$usr/share/doc/gnomon/"
scripts/dist/notices.py >"$usr/share/doc/gnomon/NOTICES"
scripts/dist/sbom.py >"$usr/share/doc/gnomon/gnomon.cdx.json"
gzip -9n "$usr"/share/man/man1/*.1 "$usr/share/doc/gnomon/NOTICES"

# in_order DIRECTORY: modes and times that do not depend on when and by whom it was made.
in_order() {
  chmod -R u+rwX,go+rX,go-w "$1"
  find "$1" -exec touch --no-dereference -d "@$SOURCE_DATE_EPOCH" {} +
}

# pack DIRECTORY DEB COMPRESSION: its DEBIAN/ and files as a package.
pack() {
  (cd "$1" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) \
    >"$scratch/md5sums"
  mv "$scratch/md5sums" "$1/DEBIAN/md5sums"
  in_order "$1"
  dpkg-deb --root-owner-group "-Z$3" --build "$1" "$2" >/dev/null
}

# control DIRECTORY FIELDS...: its control file, with what the two packages share.
control() {
  local tree=$1
  mkdir -p "$tree/DEBIAN"
  {
    printf '%s\n' "${@:2}"
    cat <<EOF
Version: $version
Architecture: $architecture
Maintainer: gnomon contributors <gnomon@gnomon.invalid>
Installed-Size: $(find "$tree" -path "$tree/DEBIAN" -prune -o -printf '%y %s\n' |
      awk '{ kb += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print kb }')
EOF
  } >"$tree/DEBIAN/control"
}

mkdir -p "$out"

# --- the package ----------------------------------------------------------------------------------

# Where dpkg-shlibdeps looks for it.
tree=$scratch/debian/gnomon
mkdir -p "$tree"/{DEBIAN,etc,lib/systemd/system}
cp -r "$usr" "$tree/usr"
cp appliance/systemd/gnomon.conf "$tree/etc/"
cp appliance/systemd/*.service "$tree/lib/systemd/system/"
install -D -m 755 appliance/systemd/gnomon-generator "$tree/lib/systemd/system-generators/gnomon-generator"
printf 'gnomon (%s) unstable; urgency=medium\n\n  * Commit %s.\n\n -- gnomon contributors <gnomon@gnomon.invalid>  %s\n' \
  "$version" "$(git rev-parse --short=12 HEAD)" "$(date -Rd "@$SOURCE_DATE_EPOCH")" |
  gzip -9n >"$tree/usr/share/doc/gnomon/changelog.gz"

# Libraries that the programs are linked with. The drivers of NICs, and of the ring that packet slots
# wait in, are loaded at run time, and the tool cannot know of them.
printf 'Source: gnomon\n\nPackage: gnomon\nArchitecture: any\n' >"$scratch/debian/control"
libraries=$(cd "$scratch" && dpkg-shlibdeps -O debian/gnomon/usr/bin/* |
  sed -n 's/^shlibs:Depends=//p')
ring=$(dpkg -S '*/dpdk/pmds-*/librte_mempool_ring.so.*' | sed -n '1s/:.*//p')
if [ -z "$libraries" ] || [ -z "$ring" ]; then
  echo "dist: no package has DPDK's libraries" >&2
  exit 1
fi
control "$tree" "Package: gnomon" "Section: net" "Priority: optional" \
  "Depends: $libraries, $ring, librte-meta-net" "Recommends: kmod" "Suggests: pciutils"
cat >>"$tree/DEBIAN/control" <<'EOF'
Description: kernel-bypass, memcached-compatible key-value appliance
 gnomon takes over a NIC through DPDK and serves memcached's protocols: GET over
 UDP without the Linux network stack, everything else over TCP on the same
 address. It also runs on kernel sockets, without a NIC, huge pages or a GPU.
 .
 The package brings the service, which is neither enabled nor started by the
 installation, and tools that make, replay and verify workloads.
EOF
echo /etc/gnomon.conf >"$tree/DEBIAN/conffiles"
install -m 755 scripts/dist/postinst scripts/dist/prerm scripts/dist/postrm "$tree/DEBIAN/"
pack "$tree" "$out/gnomon_${version}_$architecture.deb" xz

mkdir -p "$debug/usr/share/doc"
ln -s gnomon "$debug/usr/share/doc/gnomon-dbgsym"
control "$debug" "Package: gnomon-dbgsym" "Source: gnomon" "Section: debug" "Priority: optional" \
  "Auto-Built-Package: debug-symbols" "Depends: gnomon (= $version)" \
  "Description: debug symbols for gnomon"
# Its sections are compressed already.
pack "$debug" "$out/gnomon-dbgsym_${version}_$architecture.deb" none

# --- the archive ----------------------------------------------------------------------------------

name=gnomon-$version-x86_64
tree=$scratch/$name
cp -r "$usr" "$tree"
mkdir -p "$tree/etc" "$tree/share/gnomon/systemd"
cp appliance/systemd/gnomon.conf "$tree/etc/"
cp appliance/systemd/*.service "$tree/share/gnomon/systemd/"
cp README.md LICENSE-MIT LICENSE-APACHE "$tree/share/doc/gnomon/"
cp scripts/dist/README "$tree/"
scripts/dist/bundle.py "$tree"
scripts/dist/sbom.py "$tree" >"$tree/share/doc/gnomon/gnomon.cdx.json"
in_order "$tree"
tar -C "$scratch" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu \
  --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"

(cd "$out" && sha256sum "gnomon_${version}_$architecture.deb" \
  "gnomon-dbgsym_${version}_$architecture.deb" "$name.tar.gz") | tee "$out/SHA256SUMS"
