#!/usr/bin/env bash
# systemd's own opinion of our units: no word of complaint, and little left exposed.
set -euo pipefail
cd "$(dirname "$0")/.."

# Ten times systemd's exposure, of which 0 is the best and 100 the worst.
exposure_max=40

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
# The binary need not be installed where this runs.
for unit in appliance/systemd/*.service; do
  sed 's,/usr/bin/gnomon,/bin/true,' "$unit" >"$tree/$(basename "$unit")"
done

# Of this machine's own units it has its opinion, too.
complaints=$(systemd-analyze verify --man=no "$tree"/*.service 2>&1 || echo "exit $?")
complaints=$(grep -vE '^(/usr)?/lib/systemd/|^/etc/systemd/' <<<"$complaints" || true)
if [ -n "$complaints" ]; then
  echo "$complaints" >&2
  exit 1
fi
systemd-analyze security --offline=true --no-pager \
  --threshold="$exposure_max" "$tree/gnomon.service" >"$tree/report" ||
  { tail -1 "$tree/report" >&2; exit 1; }
