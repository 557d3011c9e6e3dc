#!/usr/bin/env python3
"""Which source files of a crate import one another in a circle.

    scripts/import_cycles.py [ROOT]      one line per circle: folder: the files in it

A file imports another when a path in it, in a `use` or inline, leads there; a re-export (`pub use`)
leads on to the file that defines the name, and is no import itself. Tests do not count.
check_structure.py fails on any circle.
"""

import re
import sys
from pathlib import Path

FOLDERS = [
    "driver-shim/src", "gpu/src", "dataplane/base/src", "dataplane/wire/src", "dataplane/memcache/src", "dataplane/store/src", "dataplane/src",
    "appliance/src", "tools/client/src", "tools/src",
]

REEXPORT = re.compile(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);")


def module_of(rel):
    """The module path of a file, as a tuple, from its path below a folder of sources."""
    parts = rel.with_suffix("").parts
    return parts[:-1] if parts[-1] in ("lib", "main", "mod") else parts


class Crate:
    """The files of one crate and what they import. `helpers` is the module check_structure."""

    def __init__(self, files, helpers):
        """`files`: the text, without comments and tests, of each module."""
        self.files = files
        self.helpers = helpers
        self.children = {m: set(helpers.CHILD.findall(code)) for m, code in files.items()}
        self.reexports = {m: dict(self.aliases(m, code)) for m, code in files.items()}

    def aliases(self, module, code):
        """Names that a file re-exports, and the paths they stand for."""
        for match in REEXPORT.finditer(code):
            for tree in self.named(match[1]):
                path, name = tree
                target = self.helpers.resolve(path, module, self.children[module])
                if target is not None:
                    yield name, tuple(target)

    def named(self, tree):
        """The paths of a `use` tree, each with the name it gets."""
        for part in self.helpers.expand_use(re.sub(r"\s+", " ", tree)):
            path = part.replace(" ", "")
            yield path, path.split("::")[-1]

    def file(self, target, depth=0):
        """The file that a module path leads to, by way of re-exports."""
        target = tuple(target)
        for length in range(len(target), -1, -1):
            if (module := target[:length]) in self.files:
                rest = target[length:]
                on = self.reexports[module].get(rest[0]) if rest else None
                if on is not None and depth < 8 and on != target:
                    return self.file((*on, *rest[1:]), depth + 1)
                return module
        return None

    def imports(self):
        """For each file the files that it imports."""
        edges = {}
        for module, code in self.files.items():
            private = REEXPORT.sub("", code)
            found = set()
            for path, _ in self.helpers.paths_in(private):
                target = self.helpers.resolve(path, list(module), self.children[module])
                to = self.file(target) if target is not None else None
                if to is not None and to != module:
                    found.add(to)
            edges[module] = found
        return edges


def circles(edges):
    """The strongly connected components of more than one file (Tarjan)."""
    index, low, stack, on, out = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for to in sorted(edges[node]):
            if to not in index:
                visit(to)
                low[node] = min(low[node], low[to])
            elif to in on:
                low[node] = min(low[node], index[to])
        if low[node] == index[node]:
            circle = []
            while True:
                member = stack.pop()
                on.discard(member)
                circle.append(member)
                if member == node:
                    break
            if len(circle) > 1:
                out.append(sorted("::".join(m) or "lib" for m in circle))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(out)


def find(tree, helpers):
    """The circles of each folder of a check_structure.Tree."""
    found = {}
    for folder in FOLDERS:
        files = {
            module_of(rel.relative_to(folder)): code
            for rel, code in tree.tested.items()
            if Path(folder) in rel.parents and not tree.is_test[rel]
        }
        if files:
            found[folder] = circles(Crate(files, helpers).imports())
    return found


def main(argv):
    """Prints the circles."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import check_structure  # noqa: PLC0415

    tree = check_structure.Tree(argv[1] if len(argv) > 1 else Path(__file__).resolve().parent.parent)
    found = find(tree, check_structure)
    for folder, here in found.items():
        for circle in here:
            print(f"{folder}: {', '.join(circle)}")
    print(f"imports: {sum(map(len, found.values()))} circles")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
