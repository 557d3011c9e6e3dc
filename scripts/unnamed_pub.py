#!/usr/bin/env python3
"""`pub` items that no other file names: make them private, or delete them.

    scripts/unnamed_pub.py [ROOT]      one line per item: path:line: name

An item is a function, type, trait, constant or static that is declared `pub` outside tests. A file
names it when the identifier stands in its code: comments, strings and `pub use` do not count, tests
do. A type is also in use when a `pub` declaration of its own file mentions it: a caller gets the value
without a name. check_structure.py runs this. Identifiers are compared, not paths: an item is
missed when another one of its name is in use.
"""

import re
import sys
from pathlib import Path

ITEM = re.compile(
    r"\bpub\s+(?:(?:unsafe|const|async|extern\s+\"?\w*\"?)\s+)*"
    r"(?P<kind>fn|struct|enum|union|trait|const|static|type)\s+(?:mut\s+)?(?P<name>[A-Za-z]\w*)"
)

REEXPORT = re.compile(r"\bpub(?:\([^)]*\))?\s+use\s+[^;]+;")

DECLARATION = re.compile(
    r"\bpub(?:\([^)]*\))?\s+\w+\s*:[^\n]*|\bpub\b[^{;]*[{;]|\btype\s+\w+\s*=[^;]*;|\bimpl\b[^{;]*\{|^\s+\w+\([^)]*\),$", re.MULTILINE
)
"""Where a file's public surface mentions a type: signatures, fields, associated types, variants."""

TYPES = {"struct", "enum", "union", "trait", "type"}

FOREIGN = {"main"}
"""Names that something outside the sources calls."""


def find(tree):
    """`(path, line, name)` of each such item of a check_structure.Tree."""
    words = {rel: set(re.findall(r"\w+", REEXPORT.sub("", code))) for rel, code in tree.code.items()}
    files_with = {}
    for rel, names in words.items():
        for name in names:
            files_with.setdefault(name, set()).add(rel)
    for rel, code in tree.tested.items():
        if tree.is_test[rel] or "src" not in rel.parts:
            continue
        surface = None
        for match in ITEM.finditer(code):
            name = match["name"]
            if name in FOREIGN or files_with.get(name, set()) - {rel}:
                continue
            if match["kind"] in TYPES:
                surface = surface or list(DECLARATION.finditer(code))
                own = (match.start(), match.end())
                if any(
                    re.search(rf"\b{name}\b", m[0]) and not m.start() <= own[0] < m.end()
                    and not re.match(rf"impl\b[^{{]*\b{name}\b(?:<[^>]*>)?\s*{{$", m[0])
                    for m in surface
                ):
                    continue
            yield rel, code.count("\n", 0, match.start()) + 1, name


def main(argv):
    """Prints the items."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import check_structure  # noqa: PLC0415

    root = argv[1] if len(argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(find(check_structure.Tree(root)))
    for rel, line, name in found:
        print(f"{rel}:{line}: {name}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
