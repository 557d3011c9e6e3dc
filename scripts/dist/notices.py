#!/usr/bin/env python3
"""Writes what the licences of the crates in the programs ask to be handed on.

    scripts/dist/notices.py > NOTICES

One paragraph per crate, then each licence text once, with the crates that it is of.
"""

import json
import subprocess
import sys
from pathlib import Path

TEXTS = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "UNLICENSE*", "license*")
TARGET = "x86_64-unknown-linux-gnu"


def crates():
    """The crates of others that end up in the programs: no build scripts, no tests."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={TARGET}"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    packages = {p["id"]: p for p in metadata["packages"]}
    edges = {n["id"]: n["deps"] for n in metadata["resolve"]["nodes"]}
    seen, left = set(), list(metadata["workspace_members"])
    while left:
        at = left.pop()
        if at in seen:
            continue
        seen.add(at)
        left += [d["pkg"] for d in edges[at] if any(k["kind"] is None for k in d["dep_kinds"])]
    ours = set(metadata["workspace_members"])
    return sorted((packages[i] for i in seen - ours), key=lambda p: (p["name"], p["version"]))


def main():
    texts = {}
    print("gnomon contains these crates:\n")
    for crate in crates():
        name = f"{crate['name']} {crate['version']}"
        print(f"{name}: {crate['license'] or 'see its text'}")
        source = Path(crate["manifest_path"]).parent
        files = sorted({f for pattern in TEXTS for f in source.glob(pattern) if f.is_file()})
        if not files and not crate["license"]:
            sys.exit(f"notices: {name} has no licence")
        for file in files:
            texts.setdefault(file.read_text(errors="replace").strip(), []).append(name)
    for text, names in texts.items():
        of = ", ".join(dict.fromkeys(names))
        print(f"\n{'-' * 78}\nOf {of}:\n\n{text}")


if __name__ == "__main__":
    main()
