#!/usr/bin/env bash
# Runs the named parts of the tests, each to its end, and adds up what they counted. Parts that only
# compute run beside the others, which wait for clocks, guests and each other.
#
#   scripts/test.sh PART...     parts: dist containers lint ptx unit kernels instructions e2e demo debian13 loom
#                              fuzz deny docs bundle boot
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
scripts/provision.sh
make_scratch

# Each part prints its own lines; its counts are read back from them.
part_lint() { scripts/lint.sh; }
part_deny() { scripts/deny.sh; }
part_ptx() { scripts/ptx.py check && scripts/kernel_instructions.py; }
# The pages are those of the program that the tests have built.
part_unit() { scripts/unit_tests.py && scripts/check_pages.sh; }
# The kernels against the CPU engine on a million packets, and whole replies to a million; the unit tests take fewer.
part_kernels() {
  SIMT_PACKETS=1000000 cargo test --workspace --test simt_parity -q random_packets &&
    WHOLE_REPLY_BURSTS=3500 cargo test --workspace --test journeys -q replies_are_the_cpu_engines_in_every_mode
}
part_bundle() { scripts/tests/gpu_check.sh; }
part_loom() { scripts/loom.sh; }
part_fuzz() { scripts/fuzz.sh --brief; }
part_docs() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps -q; }
part_instructions() { scripts/instructions.sh; }
part_e2e() { scripts/e2e.sh; }
part_demo() { scripts/demo.sh; }
part_dist() { scripts/dist.sh && tests/e2e/package.sh; }
# Of what dist has made.
part_containers() { scripts/oci.sh && tests/e2e/container.sh; }
part_debian13() { tests/e2e/debian13.sh; }
part_boot() {
  release_build && scripts/boot_test.sh --nic "${NIC:-e1000e}" ${DISK:+--disk}
}

# The package and all others have one build: cargo keeps it beside a developer's.
[[ " $* " != *" dist "* ]] || export REPRODUCIBLE=yes

# They measure no time, and replace no program that another part runs.
computing=" dist containers debian13 loom fuzz deny docs bundle boot "
here=() beside=()
for part in "$@"; do
  if [[ $computing == *" $part "* ]]; then beside+=("$part"); else here+=("$part"); fi
done
if [ "${#here[@]}" -eq 0 ]; then
  here=("${beside[@]}") beside=()
fi
if [ "${#beside[@]}" -gt 0 ]; then
  echo "== beside the others, shown in the end: ${beside[*]}"
  setsid scripts/test.sh "${beside[@]}" >"$scratch/beside" 2>&1 &
  lane=$!
  undo kill -TERM -- "-$lane"
fi

# note_failures PART LOG STATUS: what failed, with the first lines of what it said, and how a part ended that
# named nothing; shown again in the end.
note_failures() {
  local before
  before=$(stat -c %s "$scratch/failures" 2>/dev/null || echo 0)
  awk -v part="$1" '
    /^FAILED / || /^---- .* stdout ----$/ { print part ": " $0; left = 8; next }
    /^(ok|skipped|test) / { left = 0 }
    NF && left-- > 0' "$2" >>"$scratch/failures"
  if [ "$3" -ne 0 ] && [ "$(stat -c %s "$scratch/failures")" -eq "$before" ]; then
    echo "$1: ended with status $3, after:" >>"$scratch/failures"
    tail -n 20 "$2" >>"$scratch/failures"
  fi
}

for part in "${here[@]}"; do
  echo "== $part"
  began=$SECONDS
  log=$scratch/$part
  status=0
  "part_$part" 2>&1 | tee "$log" || status=$?
  # A part that counts ends in "N passed, N failed"; cargo's counts stand in its result lines.
  # Anything else is one check: it passed or it did not.
  p=0 f=0 s=0
  if grep -q '^test result:' "$log"; then
    read -r p f s < <(awk '/^test result:/ { p += $4; f += $6; s += $8 } END { print p, f, s }' "$log")
  elif grep -qE '^[0-9]+ passed, [0-9]+ failed$' "$log"; then
    read -r p f < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$log" | tail -n 1)
    s=$(sed -nE 's/^([0-9]+) skipped$/\1/p' "$log" | tail -n 1)
  elif [ "$status" -eq 0 ]; then
    p=1
  fi
  if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
    f=1
  fi
  note_failures "$part" "$log" "$status"
  passed=$((passed + p))
  failed=$((failed + f))
  skipped=$((skipped + ${s:-0}))
  echo "== $part: $p passed, $f failed, ${s:-0} skipped, $((SECONDS - began)) s"
done

if [ "${#beside[@]}" -gt 0 ]; then
  status=0
  wait "$lane" || status=$?
  cat "$scratch/beside"
  # Its last lines are its totals.
  read -r p f < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$scratch/beside" | tail -n 1) || true
  s=$(tail -n 2 "$scratch/beside" | sed -nE 's/^([0-9]+) skipped$/\1/p')
  if [ "$status" -ne 0 ] && [ "${f:-0}" -eq 0 ]; then
    f=1
  fi
  sed -n '/^== what failed$/,$ { //d; /^[0-9]* \(skipped\|passed\)/d; p }' "$scratch/beside" >>"$scratch/failures"
  passed=$((passed + ${p:-0}))
  failed=$((failed + ${f:-0}))
  skipped=$((skipped + ${s:-0}))
fi
if [ "$failed" -gt 0 ]; then
  echo "== what failed"
  cat "$scratch/failures"
fi
totals
