#!/usr/bin/env bash
# What the crates that gnomon is made of may be: their licences, sources, versions and known
# vulnerabilities, against deny.toml. Builds cargo-deny once, under target/tools.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

version=0.20.2
tools=target/tools
if [ "$("$tools/bin/cargo-deny" --version 2>/dev/null)" != "cargo-deny $version" ]; then
  # Unoptimised and without debug information: it runs for a second, and more takes minutes.
  CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-deny --version "=$version" --locked --debug -q --root "$tools" --target-dir "$tools/build"
  rm -rf "$tools/build"
fi
deny() { "$tools/bin/cargo-deny" --locked check "$@"; }

check "licences of the crates" deny licenses
check "no crate twice, no version left open" deny bans
check "crates come from the registry" deny sources
database=https://github.com/RustSec/advisory-db
if timeout 20 git ls-remote -q "$database" HEAD >/dev/null 2>&1; then
  check "no known vulnerability, no crate of our choice without a maintainer" deny advisories
else
  skip "known vulnerabilities" "$database cannot be reached"
fi
totals
