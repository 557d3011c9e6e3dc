#!/usr/bin/env bash
# Installs what building, testing and the demo need, and nothing that is there already.
# Quick when nothing is missing. Starts no service. Used by make, CI and the Vagrantfile.
#
#   scripts/provision.sh [demo|dist]      only what the demo needs, or the package; else everything
set -euo pipefail

# build
packages=(gcc g++ make pkg-config libdpdk-dev python3)
demo=("${packages[@]}" iproute2)
dist=("${packages[@]}" dpkg-dev git help2man patchelf)
# real clients, and the server that is compared with
packages+=(memcached libmemcached-tools python3-venv ruby-dalli libcache-memcached-fast-perl libio-socket-ssl-perl)
packages+=(golang-go golang-github-bradfitz-gomemcache-dev php-cli php-memcached)
# a proxy in front of several servers
packages+=(nutcracker)
# a client of one-sided reads
packages+=(libibverbs-dev ibverbs-providers zlib1g-dev)
# network namespaces, captures
packages+=(iproute2 iputils-ping ethtool nftables tshark openssl)
# instructions per request
packages+=(valgrind)
# the disk image, and the guests that boot
packages+=(busybox-static qemu-system-x86 qemu-utils fdisk dosfstools mtools grub-pc-bin grub-efi-amd64-bin)
# containers, without a daemon; promtool, which reads the alert rules
packages+=(podman crun skopeo prometheus)
# checks of the scripts themselves
packages+=(shellcheck ruby systemd man-db zsh fish)
# a second compiler for the GPU's kernels, and what looks for bugs in them
packages+=(clang-19 clang-tidy-19)
# the package, the archive, and Debian roots to try them in
packages+=(lintian mmdebstrap "${dist[@]}")

case ${1:-} in
  demo) packages=("${demo[@]}") ;;
  dist) packages=("${dist[@]}") ;;
esac

if ! command -v cargo >/dev/null; then
  echo "provision: there is no Rust tool chain; install one from https://rustup.rs and start again" >&2
  exit 1
fi

# `make test` needs the two components; a minimal tool chain lacks them.
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
  if command -v rustup >/dev/null; then
    rustup component add rustfmt clippy
  else
    echo "provision: cargo has no fmt or no clippy; make lint will say so" >&2
  fi
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "provision: as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

# Debian starts the service of every package that brings one. A policy that says 101 forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi

install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}"
}

echo "provision: installing ${missing[*]}"
# Package lists may be absent or out of date; they are fetched only then.
if ! install; then
  "${as_root[@]}" apt-get update -q
  install
fi

# Where systemd runs, the policy above is not asked at the next boot.
if [ -d /run/systemd/system ]; then
  for service in memcached nutcracker prometheus; do
    if [[ " ${missing[*]} " == *" $service "* ]]; then
      "${as_root[@]}" systemctl disable --now "$service" >/dev/null 2>&1 || true
    fi
  done
fi
