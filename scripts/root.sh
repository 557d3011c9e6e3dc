# Sourced after lib.sh: fresh Debian roots to try things in, as a user's machine would be.
# shellcheck shell=bash
#
# A root is unpacked from a tarball that is made once from the mirror that this machine uses and kept
# under target/roots, with the packages that were downloaded since. Root may do this, nobody else.

# Debian 12; GNOMON_SUITE=trixie for 13.
suite=${GNOMON_SUITE:-bookworm}
root_path=/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
roots=$PWD/target/roots

# in_mount_namespace ARGS...: starts the script anew where its mounts are its own and go with it.
in_mount_namespace() {
  if [ "${GNOMON_MOUNTS:-}" != own ]; then
    GNOMON_MOUNTS=own exec unshare --mount --propagation private -- "$0" "$@"
  fi
}

# base_root: makes the tarball where it is missing or a month old. Sets $base.
base_root() {
  local sources
  base=$roots/$suite.tar
  # The downloaded packages are one run's at a time.
  mkdir -p "$roots/archives"
  exec {roots_lock}>"$roots/lock"
  flock --wait 3600 "$roots_lock"
  [ -z "$(find "$base" -mtime -30 2>/dev/null)" ] || return 0
  # Of what apt is set up with here, what is Debian's own, or for another suite the same mirror.
  # shellcheck disable=SC2016 # apt-get expands them
  sources=$(apt-get indextargets --format '$(ORIGIN)|$(REPO_URI)|$(CODENAME)|$(COMPONENT)' \
    'Created-By: Packages' | awk -F'|' '$1 ~ /^Debian/ { print "deb", $2, $3, $4 }' | sort -u)
  if [[ $sources != *" $suite main"* ]]; then
    sources=$(sed -nE 's/^(deb .*) (bookworm|trixie) main$/\1/p' <<<"$sources" | head -n 1)
    sources="${sources:-deb http://deb.debian.org/debian} $suite main"
  fi
  echo "making a Debian root ($suite); the next time it is there"
  printf '%s\n' "$sources" | mmdebstrap --quiet --format=tar --variant=minbase --skip=cleanup/apt/lists \
    --dpkgopt=force-unsafe-io "$suite" "$base.new" -
  mv "$base.new" "$base"
}

# fresh_root NAME: a root with devices, /proc and /sys. Sets $NAME to its path.
fresh_root() {
  # shellcheck disable=SC2154 # make_scratch sets it
  local root=$scratch/$1 device
  mkdir "$root"
  undo drop_root "$root"
  # A root is where something is mounted, or what runs in it can have no mounts of its own.
  mount --bind "$root" "$root"
  tar -C "$root" --xattrs -xf "$base"
  mount -t proc proc "$root/proc"
  mount -o bind,ro /sys "$root/sys"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  mkdir -p "$root"/dev/{net,pts,shm}
  for device in null zero full random urandom tty net/tun; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
  done
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s fd/0 "$root/dev/stdin"
  ln -s fd/1 "$root/dev/stdout"
  ln -s fd/2 "$root/dev/stderr"
  mount -t tmpfs tmpfs "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  mount --bind "$roots/archives" "$root/var/cache/apt/archives"
  cp --dereference --remove-destination /etc/resolv.conf "$root/etc/resolv.conf"
  # Whom this machine's own administrator trusts, the root trusts: they may stand before the network.
  mkdir -p "$root/usr/local/share/ca-certificates"
  find /usr/local/share/ca-certificates -name '*.crt' \
    -exec cp --target-directory="$root/usr/local/share/ca-certificates" {} +
  # No service is started in a root.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod 755 "$root/usr/sbin/policy-rc.d"
  printf -v "$1" '%s' "$root"
}

# drop_root ROOT: removes it, unless something is still mounted there, which would be emptied.
drop_root() {
  local place
  while read -r place; do
    umount "$place"
  done < <(awk -v root="$1/" 'index($5 "/", root) == 1 { print $5 }' /proc/self/mountinfo | tac)
  if ! grep -qF " $1/" /proc/self/mountinfo; then
    rm -rf --one-file-system "$1"
  fi
}

# within ROOT COMMAND...: in the root, with a login's environment and nothing of this one.
within() {
  local root=$1
  shift
  env -i HOME=/root USER=root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    PATH="$root_path" \
    chroot "$root" "$@"
}
