#!/usr/bin/env bash
# The newcomer's path, typed into fresh Debian roots: the commands of README.md's first block, then
# docs/quickstart.md, by each of its three ways. Nothing is repeated here: the pages are read.
#
# A newcomer has Debian, sudo, the tools that README.md asks for, and Rust. Rust comes from this machine:
# its tool chain is mounted read-only where rustup would put it, with a copy of what cargo has downloaded,
# so that the roots need no other network than Debian's mirror. They use the machine's network, for
# that mirror; nothing else may serve on 127.0.0.1:11211 meanwhile.
#
#   NEWCOMER_SKIP="make test" scripts/newcomer.sh [clone] [package] [archive]
#
# Default: all three on Debian 12, then on Debian 13 those that are for it. GNOMON_SUITE=trixie is Debian 13.
#
# NEWCOMER_SKIP names a command of README.md's that is left out: everything that CI runs takes long.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/root.sh
. scripts/root.sh
in_mount_namespace "$@"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
scripts/provision.sh
make_scratch
base_root
newer=no
[ "$#" -gt 0 ] || { set -- clone package archive && newer=yes; }
clone="" package="" archive=""

# Longest time that one command may take, in seconds. A build on two busy cores is slow.
patience=5400

# newcomer NAME PACKAGES...: a fresh root with these packages and sudo. Sets $NAME to its path.
newcomer() {
  fresh_root "$1"
  # Who is asked whether to go on says yes.
  echo 'APT::Get::Assume-Yes "true";' >"${!1}/etc/apt/apt.conf.d/90-yes"
  within "${!1}" apt-get update -q >/dev/null
  check "$1: a machine with ${*:2} sudo" \
    within "${!1}" apt-get install -q --no-install-recommends sudo "${@:2}"
}

# type_page ROOT DIRECTORY PAGE SECTION...: its commands, in one shell.
type_page() {
  local sections=() section
  for section in "${@:4}"; do
    sections+=(--section "$section")
  done
  if (exec 3<>/dev/tcp/127.0.0.1/11211) 2>/dev/null; then
    not_ok "$3: ${*:4}" "something serves on 127.0.0.1:11211 already"
    return
  fi
  # shellcheck disable=SC2016 # the shell in the root expands it
  counted scripts/console.py "$3" "${sections[@]}" --patience "$patience" -- \
    env -i HOME=/root USER=root LANG=C.UTF-8 PATH="$root_path" \
    chroot "$1" bash -c 'cd "$0" && exec bash' "$2"
}

# The package and the archive are made here: a newcomer is given them.
given() {
  [ -n "${packed:-}" ] || { scripts/dist.sh && packed=yes; }
  mkdir -p "$1"
  cp target/dist/gnomon_*_amd64.deb target/dist/gnomon-*-x86_64.tar.gz "$1"
}

way_clone() {
  newcomer clone make gcc git python3-pip
  mkdir -p "$clone/root/.cargo" "$clone/root/.rustup"
  mount -o bind,ro "${RUSTUP_HOME:-$HOME/.rustup}" "$clone/root/.rustup"
  cp -a "${CARGO_HOME:-$HOME/.cargo}"/{bin,registry} "$clone/root/.cargo/"
  printf '[net]\noffline = true\n' >"$clone/root/.cargo/config.toml"
  git clone -q --no-hardlinks . "$clone/root/gnomon"

  # README.md's first block: each command up to the blanks before what it does.
  awk '/^```/ { if (inside) exit; inside = 1; print "```console"; next }
       inside { sub(/  .*/, ""); print "$ " $0 } END { print "```" }' README.md >"$scratch/readme.md"
  [ -z "${NEWCOMER_SKIP:-}" ] || sed -i "/^\\$ $NEWCOMER_SKIP\$/d" "$scratch/readme.md"
  type_page "$clone" /root/gnomon "$scratch/readme.md"
  type_page "$clone" /root/gnomon docs/quickstart.md "From a clone" "The first answers"
}

way_package() {
  newcomer package
  given "$package/root"
  type_page "$package" /root docs/quickstart.md "From the package" "The first answers"
}

way_archive() {
  newcomer archive
  given "$archive/root"
  type_page "$archive" /root docs/quickstart.md "From the archive" "The first answers"
}

for way in "$@"; do
  echo "-- $way"
  "way_$way"
done
if [ "$newer" = yes ]; then
  # The newer roots are made by another run, which waits for this one's otherwise.
  exec {roots_lock}>&-
  counted env -u GNOMON_MOUNTS GNOMON_SUITE=trixie scripts/newcomer.sh clone archive
fi
totals
