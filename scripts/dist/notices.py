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

    def cargo(*arguments):
        command = ["cargo", arguments[0], "--locked", *arguments[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    # What is in the tree follows from the features in use, which the metadata does not know.
    tree = cargo("tree", "--workspace", "-e=normal", f"--target={TARGET}", "--prefix=none")
    used = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    metadata = json.loads(cargo("metadata", "--format-version=1", f"--filter-platform={TARGET}"))
    others = [p for p in metadata["packages"] if p["id"] not in metadata["workspace_members"]]
    used = [p for p in others if (p["name"], f"v{p['version']}") in used]
    return sorted(used, key=lambda p: (p["name"], p["version"]))


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
