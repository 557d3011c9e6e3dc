# Sourced by scripts that want a server and namespaces of their own. What pytest runs has tests/harness.
# shellcheck shell=bash
# Each script runs in the repository's root, prints one line per check, and ends in `totals`.

# shellcheck source=scripts/lib.sh
. scripts/lib.sh
make_scratch

gnomon=${GNOMON:-target/release/gnomon}
# shellcheck disable=SC2034 # the sourcing scripts use it
memc=tests/e2e/memc.py

# --- namespaces ---------------------------------------------------------------------------------

# need_netns: ends the script, counted as skipped, where namespaces cannot be made.
need_netns() {
  local probe="gnomon-$$-probe" why
  if ! why=$(ip netns add "$probe" 2>&1 && ip netns exec "$probe" true 2>&1); then
    ip netns del "$probe" 2>/dev/null || true
    skip "$(basename "$0")" "no network namespaces here: $why"
    totals
    exit
  fi
  ip netns del "$probe"
}

# netns NAME [VARIABLE]: makes the namespace gnomon-PID-NAME, with its loopback up, and sets $VARIABLE,
# or $NAME, to it.
netns() {
  local name="gnomon-$$-$1"
  ip netns add "$name"
  undo ip netns del "$name"
  ip -n "$name" link set lo up
  # memcaslap looks names up with AI_ADDRCONFIG, which does not count loopback as an address.
  ip -n "$name" addr add 198.51.100.1/32 dev lo
  printf -v "${2:-$1}" '%s' "$name"
}

# in_ns NS COMMAND...
in_ns() {
  local ns=$1
  shift
  ip netns exec "$ns" "$@"
}

# client_addresses NS DEVICE: the client's side of the test network.
client_addresses() {
  ip -n "$1" addr add 10.77.0.2/24 dev "$2"
  ip -n "$1" addr add fd77::2/64 dev "$2" nodad
}

# --- servers ------------------------------------------------------------------------------------

# server_start NS ARGS...: starts `gnomon serve ARGS` in the namespace. Sets $server_pid, $server_log.
server_start() {
  local ns=$1
  shift
  server_log=$scratch/server-$RANDOM.log
  ip netns exec "$ns" "$gnomon" serve "$@" >"$server_log" 2>&1 &
  server_pid=$!
  undo stop_pid "$server_pid"
}

# server_wait NAME COMMAND...: until the command succeeds, as long as the server lives; 30 s.
# On failure shows the server's log and ends the script.
server_wait() {
  local name=$1 deadline=$((SECONDS + 30))
  shift
  until "$@" >/dev/null 2>&1; do
    if gone "$server_pid" || [ "$SECONDS" -ge "$deadline" ]; then
      not_ok "$name" "the server did not get that far"
      sed 's/^/        | /' "$server_log" | tail -n 60
      totals
      exit 1
    fi
    sleep 0.05
  done
  ok "$name"
}

# server_stop: asks it to end and expects it to, in good order.
server_stop() {
  local status=0
  kill -TERM "$server_pid"
  if ! wait_for 15 gone "$server_pid"; then
    kill -KILL "$server_pid"
    not_ok "stops on SIGTERM" "still there after 15 s"
    return
  fi
  wait "$server_pid" || status=$?
  if [ "$status" -eq 0 ]; then
    ok "stops on SIGTERM with status 0"
  else
    not_ok "stops on SIGTERM" "exit status $status"
    sed 's/^/        | /' "$server_log" | tail -n 60
  fi
}
