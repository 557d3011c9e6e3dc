#!/usr/bin/env bash
# The package and the archive of target/dist, each in a Debian root that has seen neither DPDK nor
# gnomon: installs, serves, keeps what its owner changed, and leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/root.sh
. scripts/root.sh
in_mount_namespace "$@"
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
need_netns
base_root
host="" installed="" bare=""
netns host

version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
deb=target/dist/gnomon_${version}_amd64.deb
archive=target/dist/gnomon-$version-x86_64.tar.gz
here=127.0.0.1:11211

# --- as files -----------------------------------------------------------------------------------

names_nobody() { ! grep -qaF -e "$HOME" -e "$PWD" "$scratch"/unpacked/usr/bin/* "$scratch"/symbols/usr/lib/debug/.build-id/*/*; }
DIST_OUT=$scratch/again scripts/dist.sh >/dev/null
check "packing again makes the same bytes" diff "$scratch/again/SHA256SUMS" target/dist/SHA256SUMS
dpkg-deb -x "$deb" "$scratch/unpacked"
dpkg-deb -x "target/dist/gnomon-dbgsym_${version}_amd64.deb" "$scratch/symbols"
check "no program names the place or the user that built it" names_nobody
check "lintian finds no error" lintian --allow-root --fail-on error "$deb"

# The bills of materials: CycloneDX as its own library reads it, every crate that cargo names, DPDK, and in the
# archive's each package whose libraries lie in it.
venv=target/clients/venv
made_venv "$venv" tests/e2e/clients/requirements.txt
tar -xzf "$archive" -C "$scratch"
bill=$scratch/unpacked/usr/share/doc/gnomon/gnomon.cdx.json
archive_tree=$scratch/gnomon-$version-x86_64
archive_bill=$archive_tree/share/doc/gnomon/gnomon.cdx.json
valid_bill() {
  "$venv/bin/python" - "$1" <<'EOF'
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

with open(sys.argv[1], encoding="utf-8") as file:
    sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(file.read()))
EOF
}
names_of() { sed -n 's/^   "purl": "\(.*\)",\?$/\1/p' "$1" | sort; }
names_crates() {
  diff <(cargo tree --workspace --locked -e normal --target x86_64-unknown-linux-gnu --prefix none --no-dedupe |
    grep -vF "($PWD" | sed -nE 's,^(\S+) v(\S+).*,pkg:cargo/\1@\2,p' | sort -u) <(names_of "$bill" | grep '^pkg:cargo/')
}
names_libraries() {
  diff <(cd "$archive_tree/share/doc/gnomon/libraries" && printf '%s\n' * | sed 's/\.copyright$//' | sort) \
    <(names_of "$archive_bill" | sed -nE 's,^pkg:deb/debian/([^@]*)@.*,\1,p')
}
check "the package's bill of materials is CycloneDX" valid_bill "$bill"
check "the archive's, too" valid_bill "$archive_bill"
check "it names every crate" names_crates
check "it names DPDK" grep -qx "pkg:generic/dpdk@$(pkg-config --modversion libdpdk)" <(names_of "$bill")
check "the archive's names the libraries in it" names_libraries

# --- in a root ----------------------------------------------------------------------------------

# serves NAME ROOT GNOMON ARGS...: a set and a get over TCP, a get over UDP, the metrics.
serves() {
  local name=$1 root=$2 program=$3
  shift 3
  server_log=$scratch/$name.log
  mkdir -p "$root/run/gnomon"
  ip netns exec "$host" chroot "$root" "$program" serve "$@" >"$server_log" 2>&1 &
  server_pid=$!
  undo stop_pid "$server_pid"
  server_wait "$name: serves" in_ns "$host" "$memc" wait "$here" 1
  check "$name: set over TCP" said "STORED" in_ns "$host" "$memc" tcp "$here" $'set k 0 0 5\r\nhello'
  check "$name: get over TCP" said "hello" in_ns "$host" "$memc" tcp "$here" 'get k'
  check "$name: get over UDP" said "hello" in_ns "$host" "$memc" udp "$here" 'get k'
  check "$name: gnomon stats" said 1 in_ns "$host" chroot "$root" "$program" stats memcached_up
  server_stop
}

# said WORD COMMAND...: whether the command does well and says this.
said() {
  local word=$1 text
  shift
  text=$("$@") && printf '%s\n' "$text" && [[ $text == *"$word"* ]]
}

# ports NAME ROOT BIN: a DPDK port, whose driver is loaded at run time, and a client on another.
ports() {
  local name=$1 root=$2 bin=$3 socket=$3/memif.sock trace=$3/trace.pcap mac=02:00:00:00:91:01
  local own=${root%/}
  [ -n "$own" ] || own=${bin%/bin}
  in_ns "$host" chroot "$root" "$bin/gnomon-pcapgen" --keys 1000 --requests 20000 --get-ratio 0.9 \
    --seed 1 --clients 8 --src 10.91.1.1 --dst 10.91.0.1 --dst-mac "$mac" --out "$trace" \
    >"$scratch/pcapgen.log"
  server_log=$scratch/$name-ports.log
  ip netns exec "$host" chroot "$root" "$bin/gnomon" serve --json -m 64 -p 0 --side-door none \
    --ip 10.91.0.1/16 \
    --port "net_memif0,role=server,id=0,socket=$socket,socket-abstract=no,mac=$mac" \
    >"$server_log" 2>&1 &
  server_pid=$!
  undo stop_pid "$server_pid"
  server_wait "$name: opens a DPDK port" grep -q '"version"' "$server_log"
  check "$name: 20,000 requests over it, no reply wrong" in_ns "$host" timeout 120 chroot "$root" \
    "$bin/gnomon-replay" --port "net_memif0,role=client,id=0,socket=$socket,socket-abstract=no" \
    --max-lost 0.05 "$trace"
  # Where this machine has DPDK, too, none of its libraries may get in.
  check "$name: uses no other libraries than its own" own_libraries "$server_pid" "$own"
  server_stop
}
own_libraries() {
  local maps
  maps=$(awk '/librte_/ { print $6 }' "/proc/$1/maps" | sort -u)
  # Seen from another mount namespace a path may begin further up.
  [ -n "$maps" ] && ! grep -vF "$2/" <<<"$maps"
}

# --- the package --------------------------------------------------------------------------------

fresh_root installed
cp "$deb" "$installed/tmp/gnomon.deb"
install_deb() {
  within "$installed" apt-get update -q &&
    within "$installed" apt-get install -y -q --no-install-recommends "/tmp/$1"
}
check "installs, with what it depends on" install_deb gnomon.deb
check "gnomon --version" said "gnomon $version" within "$installed" gnomon --version
check "gnomon check" said PASS within "$installed" gnomon check
check "gnomon check finds DPDK's drivers" said "/usr/lib" \
  within "$installed" sh -c "gnomon check --port 0000:00:00.0 --ip 10.0.0.5/24 | grep drivers"
pages_fit() {
  local program
  for program in "$installed"/usr/bin/gnomon*; do
    [ -s "$installed/usr/share/man/man1/$(basename "$program").1.gz" ] || return 1
  done
}
check "every program has a manual page" pages_fit

# What the units name is where they say, and systemd has nothing to add.
units_fit() {
  local unit path
  for unit in "$installed"/lib/systemd/system/gnomon*.service; do
    while read -r path; do
      echo "$(basename "$unit"): $path"
      [ -s "$installed$path" ] || return 1
    done < <(sed -nE 's,^Exec(Start|Stop)=(\S+).*,\2,p; s,.*file:(\S+).*,\1,p
      s,.*--config (\S+).*,\1,p' "$unit")
  done
}
check "what the units name is there" units_fit
check "the service's flags are understood" said "--tcp-port 11211" \
  within "$installed" gnomon serve --config /etc/gnomon.conf --print-config
serves "package" "$installed" /usr/bin/gnomon --config /etc/gnomon.conf
ports "package" "$installed" /usr/bin

# An upgrade: the same, called newer.
dpkg-deb -R "$deb" "$scratch/newer"
sed -i "s/^Version: .*/Version: $version+1/" "$scratch/newer/DEBIAN/control"
dpkg-deb --root-owner-group -Znone -b "$scratch/newer" "$installed/tmp/newer.deb" >/dev/null
mkdir -p "$installed/etc/systemd/system/multi-user.target.wants"
ln -s /lib/systemd/system/gnomon.service "$installed/etc/systemd/system/multi-user.target.wants/"
sed -i 's/^-m 64$/-m 96/' "$installed/etc/gnomon.conf"
check "upgrades" within "$installed" apt-get install -y -q /tmp/newer.deb
check "upgrades to the newer" said "$version+1" \
  within "$installed" dpkg-query -W gnomon
check "keeps the file of flags that was changed" grep -qx -- '-m 96' "$installed/etc/gnomon.conf"
check "goes" within "$installed" apt-get remove -y -q gnomon
check "keeps the flags until it is purged" \
  within "$installed" sh -c '! [ -e /usr/bin/gnomon ] && grep -qx -- "-m 96" /etc/gnomon.conf'
rm -rf "$installed"/tmp/*
check "is purged" within "$installed" apt-get purge -y -q gnomon
nothing_left() {
  ! find "$installed" -xdev -name '*gnomon*' -not -path '*/var/cache/apt/archives/*' -print | grep .
}
check "leaves nothing" nothing_left

# --- the archive --------------------------------------------------------------------------------

fresh_root bare
check "the root has no DPDK" within "$bare" sh -c '! ls /usr/lib/x86_64-linux-gnu/librte_* 2>/dev/null'
tar -C "$bare/opt" -xzf "$archive"
mv "$bare/opt/gnomon-$version-x86_64" "$bare/opt/g n"
check "archive: gnomon --version" said "gnomon $version" within "$bare" "/opt/g n/bin/gnomon" --version
check "archive: gnomon check finds its drivers" said "/opt/g n/lib/gnomon/pmds" \
  within "$bare" sh -c "'/opt/g n/bin/gnomon' check --port 0000:00:00.0 --ip 10.0.0.5/24 | grep drivers"
serves "archive" "$bare" "/opt/g n/bin/gnomon" --metrics unix:/run/gnomon/metrics.sock
mv "$bare/opt/g n" "$bare/srv/elsewhere"
ports "archive, moved" "$bare" /srv/elsewhere/bin
# On this machine, which has a DPDK of its own where DPDK looks for drivers. Not below /tmp: DPDK takes
# no drivers from there. The mount is this script's, and goes with it.
mount -t tmpfs -o mode=755 tmpfs /mnt
tar -C /mnt -xzf "$archive" --strip-components=1
ports "archive, beside another DPDK" / /mnt/bin
totals
