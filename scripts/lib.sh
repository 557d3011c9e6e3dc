# Sourced by the other scripts: counted checks, bounded waits, and a list of what to undo.
# shellcheck shell=bash

passed=0
failed=0
skipped=0

# ok NAME / not_ok NAME [WHY] / skip NAME WHY: one line and one count each.
ok() {
  passed=$((passed + 1))
  echo "ok      $1"
}
not_ok() {
  failed=$((failed + 1))
  echo "FAILED  $1${2:+: $2}"
}
skip() {
  skipped=$((skipped + 1))
  echo "skipped $1: $2"
}

# check NAME COMMAND...: passes when the command does; shows what it said when it does not.
check() {
  local name=$1 log status=0
  shift
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -eq 0 ]; then
    ok "$name"
  else
    not_ok "$name" "exit status $status"
    sed 's/^/        | /' "$log" | tail -n 60
  fi
  rm -f "$log"
  return 0
}

# counted COMMAND...: runs a checker that prints ok, FAILED and skipped lines of its own, and counts them. It
# ends in status 1 when a check failed; another status means that it did not get to its end.
counted() {
  local log=$scratch/counted status=0
  "$@" 2>&1 | tee "$log" || status=$?
  passed=$((passed + $(grep -c '^ok ' "$log" || true)))
  failed=$((failed + $(grep -c '^FAILED ' "$log" || true)))
  skipped=$((skipped + $(grep -c '^skipped ' "$log" || true)))
  if [ "$status" -gt 1 ] || { [ "$status" -eq 1 ] && ! grep -q '^FAILED ' "$log"; }; then
    not_ok "$*" "exit status $status"
  fi
}

# totals: the last line of a part, and its exit status.
totals() {
  [ "$skipped" -eq 0 ] || echo "$skipped skipped"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}

# wait_for SECONDS COMMAND...: tries until the command succeeds; fails after SECONDS.
wait_for() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.05
  done
}

# undo COMMAND...: runs the command when the script ends, however it ends; last in, first out.
undo_list=()
undo() {
  undo_list+=("$(printf '%q ' "$@")")
}
run_undo() {
  local status=$? i
  set +e
  for ((i = ${#undo_list[@]} - 1; i >= 0; i--)); do
    eval "${undo_list[i]}" >/dev/null 2>&1
  done
  exit "$status"
}
trap run_undo EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# gone PID: whether the process has ended (a zombie has).
gone() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  [[ ${stat##*) } == [ZX]* ]]
}

# stop_pid PID: SIGTERM, then SIGKILL after 5 s. Only for processes that the script started.
stop_pid() {
  gone "$1" && return 0
  kill -TERM "$1" 2>/dev/null || return 0
  if ! wait_for 5 gone "$1"; then
    kill -KILL "$1" 2>/dev/null
    wait_for 5 gone "$1"
    return 1
  fi
}

# scratch: a directory of the script's own, removed when it ends. Sets $scratch.
make_scratch() {
  scratch=$(mktemp -d)
  undo rm -rf "$scratch"
}

# release_build: all programs of the package, in target/release. For fewer packages the features would be others, and all
# would be built again. With $REPRODUCIBLE as a package has them: the same commit, tool chain and DPDK make the same bytes,
# whatever the directory and the user. cargo keeps either.
release_build() {
  local flags=()
  if [ -n "${REPRODUCIBLE:-}" ]; then
    # Whatever one build has in its environment the others must have: crates that compile C watch it.
    flags=("SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
      "RUSTFLAGS=--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$PWD=/gnomon"
      "CFLAGS=-ffile-prefix-map=$PWD=/gnomon" "CXXFLAGS=-ffile-prefix-map=$PWD=/gnomon")
  fi
  env "${flags[@]}" cargo build --release --workspace --bin=gnomon{,-pcapgen,-replay,-linear,-study} --locked -q
}

# made_venv DIR REQUIREMENTS: a Python with what is asked for, kept: made anew only when what it is made from changes.
made_venv() {
  mkdir -p "$1"
  # Tests run side by side.
  (flock 9 && { cmp -s "$2" "$1/made-from" || venv_anew "$@"; }) 9>"$1.lock"
}
venv_anew() {
  rm -rf "$1" && python3 -m venv "$1" &&
    "$1/bin/pip" install -q --disable-pip-version-check --only-binary :all: -r "$2" && cp "$2" "$1/made-from"
}
