# Sourced after lib.sh by the scripts that run client libraries in Python.
# shellcheck shell=bash

# Outside of the source, and kept: made anew only when what it is made from changes.
venv=target/clients/venv

# make_venv: the libraries in Python, as requirements.txt has them.
make_venv() {
  mkdir -p target/clients
  # Scripts run side by side.
  (flock 9 && made_venv) 9>target/clients/venv.lock
}
made_venv() {
  local wanted=tests/e2e/clients/requirements.txt
  if cmp -s "$wanted" "$venv/made-from"; then
    return
  fi
  rm -rf "$venv" &&
    python3 -m venv "$venv" &&
    "$venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: -r "$wanted" &&
    cp "$wanted" "$venv/made-from"
}
