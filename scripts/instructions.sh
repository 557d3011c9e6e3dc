#!/usr/bin/env bash
# How many instructions the data plane spends on a request, against docs/benchmarks/instructions.toml.
# Counted under valgrind, so the same on a busy machine as on an idle one; only the compiler and the
# processor's architecture matter, and where they are others nothing is compared.
#
#   scripts/instructions.sh             compares
#   scripts/instructions.sh --update    writes the file anew
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch
budget=docs/benchmarks/instructions.toml
requests=20000

# load, key bytes, value bytes, and what another engine tells, or how the fast path works; or over TCP:
# request, connections, requests that each sends at a time
scenarios=(
  "get 16 64" "get 16 1000" "get 40 64" "get 100 64" "miss 16 64" "multiget 16 64"
  "set 16 64" "set 40 64" "set 16 1000"
  "get 16 64 portable" "get 16 64 off" "read 16 64"
  "get6 16 64" "vlan 16 64" "mg 16 64" "binary 16 64"
  "get 16 64 hints" "get 16 64 with-heads" "get 16 64 whole-replies" "miss 16 64 hints" "set 16 64 hints"
  "tcp get 64 1" "tcp get 1000 1" "tcp get 64 16" "tcp set 64 1" "tcp set 1000 1" "tcp set 64 16"
  "tcp multiget 64 16" "tcp mg 64 1" "tcp mg 64 16" "tcp ms 64 16"
)

toolchain=$(rustc -vV | sed -n 's/^\(rustc .*\|host: .*\|LLVM version: .*\)/\1/p' | paste -sd ';' | sed 's/;/; /g')
if [ "${1:-}" != --update ]; then
  if ! command -v valgrind >/dev/null; then
    skip "instructions per request" "there is no valgrind"
    totals
    exit
  fi
  written=$(python3 scripts/instructions.py toolchain "$budget")
  if [ "$toolchain" != "$written" ]; then
    skip "instructions per request" "counted with '$written', this is '$toolchain'"
    totals
    exit
  fi
fi

release_build

# count_tcp REQUEST CONNECTIONS DEPTH: instructions per request over TCP, the connections' beginning not
# counted.
count_tcp() {
  local profile=$scratch/callgrind.out answered
  answered=$(valgrind -q --tool=callgrind --callgrind-out-file="$profile" \
    --toggle-collect='tools::study::tcp::memory::serve*' \
    target/release/gnomon-study tcp --through memory --verb "$1" --connections "$2" --depth "$3" \
    --key-size 16 --value-size 64 --keys 5000 --requests "$requests" --out "$scratch/study" \
    2>"$scratch/valgrind.log" | sed -n 's/^\([0-9]*\) requests, every reply.*/\1/p')
  python3 scripts/instructions.py count "$profile" "${answered:-0}"
}

# count LOAD KEY VALUE [BESIDE|FAST_PATH]: instructions per request.
count() {
  if [ "$1" = tcp ]; then
    count_tcp "$2" "$3" "$4"
    return
  fi
  local profile=$scratch/callgrind.out answered beside=${4:-} fast_path=vector
  case $beside in portable | off) fast_path=$beside beside="" ;; esac
  answered=$(GNOMON_FAST_PATH=$fast_path valgrind -q --tool=callgrind --callgrind-out-file="$profile" \
    --toggle-collect='dataplane::worker::Worker::turn' \
    target/release/gnomon-study path --load "$1" --key-size "$2" --value-size "$3" \
    ${beside:+--beside "$beside"} \
    --items 5000 --requests "$requests" 2>"$scratch/valgrind.log" | sed -n 's/^\([0-9]*\) answered.*/\1/p')
  python3 scripts/instructions.py count "$profile" "${answered:-0}"
}

name() {
  case $1 in
  tcp) echo "tcp-$2-c$3-d$4" ;;
  *) echo "$1-k$2-v$3${4:+-$4}" ;;
  esac
}

if [ "${1:-}" = --update ]; then
  {
    echo "# Instructions per request on the way from a frame in memory to the reply's frame: written by"
    echo "# scripts/instructions.sh --update. Load, bytes of key and value, and what another engine tells,"
    echo "# if there is one; \`portable\` and \`off\` are ways of the fast path. A multi-get has four keys; get6 and"
    echo "# vlan are gets over IPv6 and behind a VLAN tag, mg has the flags k and v, over TCP also f. Over TCP: connections, and"
    echo "# requests that each sends at a time."
    echo "toolchain = \"$toolchain\""
    echo
    echo "[instructions]"
    for scenario in "${scenarios[@]}"; do
      # shellcheck disable=SC2086 # the scenario is several words
      echo "$(name $scenario) = $(count $scenario)"
    done
  } >"$scratch/budget"
  cp "$scratch/budget" "$budget"
  cat "$budget"
  exit
fi

for scenario in "${scenarios[@]}"; do
  # shellcheck disable=SC2086 # the scenario is several words
  key=$(name $scenario)
  # shellcheck disable=SC2086
  if text=$(n=$(count $scenario) && python3 scripts/instructions.py compare "$budget" "$key" "$n"); then
    ok "$key: $text"
  else
    not_ok "$key" "$text"
  fi
done
totals
