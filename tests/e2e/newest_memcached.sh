#!/usr/bin/env bash
# The newest memcached that Debian has the source of, built: prints the path of the server, which stays in its source
# tree below target/. For tests that compare gnomon with it, beside the older one that Debian 12 has.
#
#   newest=$(tests/e2e/newest_memcached.sh) || skip ...    status 3: it cannot be had here, and standard error says why
#
# The archive is asked through a configuration of apt's of its own, so with this machine's mirror and proxy, and
# nothing is installed: libevent's headers and static library are unpacked beside the source where there are none.
set -euo pipefail
cd "$(dirname "$0")/../.."
home=$PWD/target/newest-memcached
mkdir -p "$home"
exec 9>"$home/lock"
flock 9

built() { find "$home" -maxdepth 2 -path '*/memcached-*/memcached' -type f -executable | sort -V | tail -n 1; }
# Once a week it is asked whether there is a newer one.
find "$home" -maxdepth 1 -name 'memcached-*' -mtime +7 -exec rm -rf {} +
done_already=$(built)
if [ -n "$done_already" ]; then
  echo "$done_already"
  exit
fi

# cannot WHY: ends the script.
cannot() {
  echo "skipped: no newest memcached: $1" >&2
  exit 3
}
for program in apt-get dpkg-deb make cc perl xz; do
  command -v "$program" >/dev/null || cannot "there is no $program"
done
log=$home/log
: >"$log"

# --- the source, by the checksum that the archive's signed index has of it -------------------------
apt=$home/apt
rm -rf "$apt"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
# shellcheck disable=SC2016 # it is apt that fills $(SITE) in
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -m 1 '/debian$' || true)
cat >"$apt/debian.sources" <<SOURCES
Types: deb-src
URIs: ${mirror:-http://deb.debian.org/debian}
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
cat >"$apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$apt/debian.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
APT::Sandbox::User "root";
Debug::NoLocking "true";
CONF
apt-get -c "$apt/apt.conf" update >>"$log" 2>&1 || cannot "the archive does not answer ($log)"
# Of the package's files only the authors' own: what Debian adds to it changes no answer.
read -r uri file _ sum < <(apt-get -c "$apt/apt.conf" --print-uris source memcached 2>>"$log" |
  grep -m 1 '\.orig\.tar\.[a-z0-9]* ' | tr -d "'") || cannot "the archive's index has no memcached ($log)"
/usr/lib/apt/apt-helper -c "$apt/apt.conf" download-file "$uri" "$apt/$file" "$sum" >>"$log" 2>&1 ||
  cannot "$uri is not to be had ($log)"
tar -C "$home" -xf "$apt/$file"
tree=$(find "$home" -maxdepth 1 -type d -name 'memcached-*' | sort -V | tail -n 1)

# --- libevent ------------------------------------------------------------------------------------------
event=""
if ! [ -e /usr/include/event2/event.h ]; then
  event=$home/libevent
  rm -rf "$event"
  mkdir -p "$event"
  (cd "$apt" && apt-get -o APT::Sandbox::User=root download libevent-dev) >>"$log" 2>&1 ||
    cannot "libevent-dev is not to be had ($log)"
  dpkg-deb -x "$apt"/libevent-dev_*.deb "$event"
  # The links to a shared library that may not be there; what is left is static.
  find "$event" -name '*.so' -delete
fi
rm -rf "$apt"

# --- the server ----------------------------------------------------------------------------------------
lib=$event/usr/lib/$(cc -print-multiarch 2>/dev/null || true)
(
  cd "$tree"
  [ -z "$event" ] || export CPPFLAGS="-I$event/usr/include" LDFLAGS="-L$lib"
  ./configure --disable-docs && make -j2 memcached timedrun
) >>"$log" 2>&1 9>&- || cannot "it does not build ($log)"
built
