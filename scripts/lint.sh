#!/usr/bin/env bash
# Format, lints, house rules, and the scripts themselves.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

mapfile -t shell_files < <(find scripts tests -name '*.sh')

check "cargo fmt" cargo fmt --all --check
check "cargo fmt, the clients' battery" \
  cargo fmt --manifest-path tests/e2e/clients/memcache_crate/Cargo.toml --check
# The client by libibverbs too, where that is; without it, below.
verbs=()
[ ! -e /usr/include/infiniband/verbs.h ] || verbs=(--features gnomon-client/verbs)
check "clippy" cargo clippy --workspace --all-targets "${verbs[@]}" -q -- -D warnings
check "clippy, without DPDK" cargo clippy --workspace --all-targets --no-default-features -q -- -D warnings
check "the checkers notice what they should" python3 -m unittest discover -q -s scripts/tests
check "structure of the tree" python3 scripts/check_structure.py
check "words of the field" python3 scripts/retired_words.py
check "shellcheck" shellcheck -x .ci/run scripts/dist/{postinst,prerm,postrm} appliance/systemd/gnomon-generator \
  "${shell_files[@]}"
check "Vagrantfile parses" ruby -c Vagrantfile
check "Vagrantfile says what it should" ruby scripts/tests/vagrantfile_test.rb
check "clang reads the kernels" scripts/clang_kernels.sh
check "systemd units" scripts/check_units.sh
totals
