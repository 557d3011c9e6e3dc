#!/usr/bin/env bash
# Manual pages render without a warning, the reference in Markdown is the committed one, completions
# load in their shells. GNOMON: the binary.
set -euo pipefail
cd "$(dirname "$0")/.."
gnomon=${GNOMON:-target/debug/gnomon}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

"$gnomon" man "$tree"
for page in "$tree"/*.1; do
  warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=100 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
  if [ -n "$warnings" ]; then
    echo "$page: $warnings" >&2
    exit 1
  fi
done
[ "$(find "$tree" -name 'gnomon*.1' | wc -l)" -ge 5 ]

"$gnomon" man --markdown | diff docs/configuration.md - >&2

for shell in bash zsh fish; do
  "$gnomon" completions "$shell" >"$tree/completion.$shell"
done
bash --norc -eu -c '. "$1"; complete -p gnomon >/dev/null' _ "$tree/completion.bash"
zsh -f -c 'autoload -Uz compinit; compinit -u -D; . "$1"; [[ $_comps[gnomon] == _gnomon ]]' _ "$tree/completion.zsh"
fish --no-config -c "source '$tree/completion.fish'; complete -C 'gnomon ser' | string match -q 'serve*'"
