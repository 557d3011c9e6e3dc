#!/usr/bin/env bash
# The tree as Debian 13 builds it, with the DPDK that it has (24.11): the program, the tests of DPDK's ports, a
# start. In a root of its own; what was compiled is kept under target/trixie.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GNOMON_SUITE=trixie
# shellcheck source=scripts/root.sh
. scripts/root.sh
in_mount_namespace "$@"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch
base_root
trixie=""
fresh_root trixie

packages() {
  within "$trixie" apt-get update -q &&
    within "$trixie" apt-get install -y -q --no-install-recommends make gcc g++ git pkg-config libdpdk-dev python3 iproute2 ethtool
}
check "Debian 13 with DPDK" packages
newer() { [ "$(within "$trixie" pkg-config --modversion libdpdk | cut -d. -f1)" -ge 24 ]; }
check "which is 24.11 or newer" newer

# The tool chain is this machine's, and so is what cargo has downloaded; the source is this tree's, to read.
mkdir -p "$trixie/root/.cargo" "$trixie/root/.rustup" "$trixie/root/gnomon" target/trixie
mount -o bind,ro "${RUSTUP_HOME:-$HOME/.rustup}" "$trixie/root/.rustup"
cp -a "${CARGO_HOME:-$HOME/.cargo}"/{bin,registry} "$trixie/root/.cargo/"
printf '[net]\noffline = true\n' >"$trixie/root/.cargo/config.toml"
mount -o bind,ro . "$trixie/root/gnomon"
mount --bind target/trixie "$trixie/mnt"
# Not optimised: what counts is that it builds, and runs.
unoptimised=(CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0)
in_tree() { within "$trixie" env CARGO_TARGET_DIR=/mnt "${unoptimised[@]}" sh -c 'cd /root/gnomon && exec "$@"' sh "$@"; }

check "builds" in_tree cargo build --locked -q --bin gnomon
check "the tests of DPDK's ports" in_tree cargo test --locked -q -p driver-shim --features dpdk
check "gnomon check finds the drivers" within "$trixie" sh -c \
  '/mnt/debug/gnomon check --port 0000:00:00.0 --ip 10.0.0.5/24 | grep "drivers.*/usr/lib"'
totals
