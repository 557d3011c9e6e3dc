#!/usr/bin/env bash
# The container image of target/dist, run by podman as users run it: not root, a root file system that cannot
# be written, no capabilities. Every client, a drain, items over a restart; no daemon, no registry.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/root.sh
. scripts/root.sh
in_mount_namespace "$@"
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
need_netns
host=""
netns host
server=127.0.0.1:11211
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
image=localhost/gnomon:$version
archive=gnomon-$version-x86_64

# --- what starts it -------------------------------------------------------------------------------

counted scripts/chart.sh

# --- as a file ----------------------------------------------------------------------------------

mkdir "$scratch/again"
cp "target/dist/$archive.tar.gz" "$scratch/again/"
DIST_OUT=$scratch/again scripts/oci.sh >/dev/null
check "making it again makes the same bytes" cmp "$scratch/again/$archive.oci.tar" "target/dist/$archive.oci.tar"
small() { [ "$(stat -c %s "target/dist/$archive.oci.tar")" -lt 60000000 ]; }
check "it has less than 60 MB" small

# --- podman -------------------------------------------------------------------------------------

# Its files are this script's. crun refuses a machine that has both kinds of control groups, and a network
# namespace entered by ip(8) has none: here it sees one kind.
cat >"$scratch/podman-here" <<END
#!/bin/sh
while mountpoint -q /sys/fs/cgroup && [ "\$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; do umount -R /sys/fs/cgroup; done
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
exec podman "\$@"
END
chmod +x "$scratch/podman-here"
podman=("$scratch/podman-here" --root "$scratch/podman" --runroot "$scratch/podman-run" --tmpdir "$scratch/podman-tmp"
  --storage-driver vfs --runtime crun --cgroup-manager cgroupfs --events-backend file)
hardened=(--cgroups disabled --network host --read-only --cap-drop all --security-opt no-new-privileges
  --ulimit "nofile=8192:8192" --ulimit "nproc=4096:4096" --pull never)

# A program in the place of gnomon: what it is called with runs in a container.
cat >"$scratch/in-a-container" <<END
#!/bin/sh
[ "\$1" = serve ] && shift
exec ${podman[*]} run --rm ${hardened[*]} $image "\$@"
END
chmod +x "$scratch/in-a-container"

check "podman loads it" "${podman[@]}" load -q -i "target/dist/$archive.oci.tar"
check "skopeo finds nothing wrong" skopeo copy -q "oci-archive:target/dist/$archive.oci.tar" "oci:$scratch/copy"
# says WORDS COMMAND...: whether this is in what it says; that is shown where a check fails.
says() {
  "${@:2}" >"$scratch/said" 2>&1 || true
  cat "$scratch/said"
  grep -q -- "$1" "$scratch/said"
}
check "flags are the service's" says "tcp-port 11311" "$scratch/in-a-container" -p 11311 --print-config
once() { "${podman[@]}" run --rm "${hardened[@]}" --entrypoint "$1" "$image" "${@:2}"; }
check "another command: --version" says "gnomon $version" once gnomon --version
check "another command: check" says "passed" once gnomon check
no_shell() { says "executable file .*not found" once /bin/sh -c true; }
check "there is no shell in it" no_shell

# start NAME ARGS...: a container of this name, in the background.
start() {
  undo "${podman[@]}" rm -f -t 1 "$1"
  ip netns exec "$host" "${podman[@]}" run -d --name "$1" "${hardened[@]}" "${options[@]}" "$image" "${@:2}" \
    >"$scratch/started" 2>&1 || { cat "$scratch/started"; return 1; }
  wait_for 30 in_ns "$host" "$memc" wait "$server" 1
}
options=()
check "starts" start plain
check "serves TCP" says STORED in_ns "$host" "$memc" tcp "$server" $'set k 0 0 5\r\nhello'
check "serves UDP" says hello in_ns "$host" "$memc" udp "$server" "get k"
check "metrics are there" says "memcached_up 1" in_ns "$host" \
  python3 -c 'import urllib.request as r; print(r.urlopen("http://127.0.0.1:9150/metrics").read().decode())'
check "it can tell its health" "${podman[@]}" exec plain gnomon stats memcached_up
main_process() { "${podman[@]}" inspect -f '{{.State.Pid}}' "$1"; }
check "runs as user 65532" says "^Uid:.65532.65532.65532.65532$" cat "/proc/$(main_process plain)/status"
stops() {
  "${podman[@]}" "$@" && says "balanced *yes" "${podman[@]}" logs "${*: -1}" &&
    [ "$("${podman[@]}" inspect -f '{{.State.ExitCode}}' "${*: -1}")" -eq 0 ]
}
# A request that has come is answered before the end.
check "stop drains it: the last report balances, status 0" stops stop -t 20 plain

# --- items over a restart -----------------------------------------------------------------------

mkdir "$scratch/items"
mount -t tmpfs -o mode=700,uid=65532,gid=65532,size=200m tmpfs "$scratch/items"
undo umount "$scratch/items"
options=(-v "$scratch/items:/items" --stop-signal SIGUSR1)
check "starts with a memory file" start first -m 64 -e /items/gnomon
check "stores" says STORED in_ns "$host" "$memc" tcp "$server" $'set kept 7 0 6\r\nacross'
check "ends on SIGUSR1" stops stop -t 20 first
check "another container starts with it" start second -m 64 -e /items/gnomon
check "the item is there" says "VALUE kept 7 6" in_ns "$host" "$memc" tcp "$server" "get kept"
check "and the same container, restarted" in_ns "$host" "${podman[@]}" restart -t 20 second
back() { wait_for 30 in_ns "$host" "$memc" wait "$server" 1 && says "VALUE kept 7 6" in_ns "$host" "$memc" tcp "$server" "get kept"; }
check "has the item still" back
"${podman[@]}" rm -f -t 5 second >/dev/null

# --- the clients --------------------------------------------------------------------------------
# But those that authenticate: the file of users is outside.

if [ -z "${SKIP_CLIENTS:-}" ]; then
  made_venv target/pytest tests/requirements.txt
  GNOMON=$scratch/in-a-container counted target/pytest/bin/pytest tests/e2e/test_clients.py --against gnomon -k "not sasl"
fi
totals
