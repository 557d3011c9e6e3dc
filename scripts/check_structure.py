#!/usr/bin/env python3
"""Checks the rules of the house that no compiler checks. docs/architecture.md states them.

    scripts/check_structure.py [ROOT]

Prints one line per violation, `path:line: rule: what to do`, and exits 1 if there was any.
Each rule is shown to fail on a planted violation in scripts/tests/test_check_structure.py.
"""

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import import_cycles
import unnamed_pub

LINES_MAX = 600
"""Lines that a file may have before its tests. Beyond that a reader loses the thread."""

CRATE_IMPORTS = {
    "gnomon": {"dataplane", "driver-shim", "gpu", "memcache", "store", "wire"},
    "tools": {"base", "dataplane", "driver-shim", "gnomon-client", "gpu", "memcache", "store", "wire"},
    "gnomon-client": {"base", "driver-shim", "memcache", "wire"},
    "dataplane": {"base", "driver-shim", "gpu", "memcache", "smoltcp-tcp", "store", "wire"},
    "smoltcp-tcp": set(),
    "memcache": {"base"},
    "store": {"base", "driver-shim", "gpu"},
    "wire": {"base", "driver-shim", "gpu"},
    "base": set(),
    "driver-shim": {"dpdk-ffi"},
    "dpdk-ffi": set(),
    "gpu": set(),
    "memcache-battery": set(),
    "gnomon-fuzz": {"base", "dataplane", "driver-shim", "gpu", "memcache", "store", "wire"},
}
"""Which crate of ours may depend on which."""

CRATE_DEV_IMPORTS = {"gnomon": {"gnomon-client", "tools"}}
"""The same for dev-dependencies alone: end-to-end tests drive the appliance with the tools."""

STAGES = "dataplane/src/stages"
"""The folder of the stages. Its `mod.rs` names them, in packet order."""

ONE_FILE_EACH = {"exits"}
"""Folders whose files are as separate as stages."""

COMMANDS = "dataplane/src/commands"
"""The folder of the commands."""

COMMAND_ARGUMENTS = 3
"""What a function there takes at most, but for its `self`: a context, a command and a sink."""

KNOWS_ALL_STAGES = {"worker"}
"""The modules of `dataplane` that know the order of the stages."""

PICTURES = ["README.md", "docs/packet-journey.md"]
"""Pages with a picture of the stages, in their first fenced block that names `driver-shim`."""

FOREIGN = "dataplane/smoltcp-tcp/src"
"""Files here are modules of a library's, by a patch."""

FORBIDDEN = {
    r"\b(?:todo|unimplemented)!": "finish it",
    r"\bdbg!": "remove it",
}
"""What must not stand outside tests. (`unwrap` and `expect` are clippy's business.)"""

SKIPPED_DIRS = {"target", ".git", ".venv", "node_modules"}


@dataclass(frozen=True, order=True)
class Violation:
    """One broken rule at one place."""

    path: str
    line: int
    rule: str
    advice: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.advice}"


TOKEN = re.compile(
    r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*)
  | (?P<raw>\b(?:b|c)?r(?P<hashes>\#*)"(?:.|\n)*?"(?P=hashes))
  | (?P<str>(?:\b[bc])?"(?:[^"\\]|\\.|\\\n)*")
  | (?P<char>(?:\bb)?'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.))')
    """,
    re.VERBOSE,
)


def blank(text):
    """`text` with everything but its line ends turned to blanks, so that line numbers hold."""
    return re.sub(r"[^\n]", " ", text)


def code_only(source):
    """Rust source with comments, strings and character literals blanked out."""
    out, at = [], 0
    while match := TOKEN.search(source, at):
        out.append(source[at : match.start()])
        end = match.end()
        if match["block"]:
            depth = 1
            while depth:
                mark = re.compile(r"/\*|\*/").search(source, end)
                if not mark:
                    end = len(source)
                    break
                depth += 1 if mark[0] == "/*" else -1
                end = mark.end()
        out.append(blank(source[match.start() : end]))
        at = end
    out.append(source[at:])
    return "".join(out)


TEST_MOD = re.compile(
    r"#\[cfg\((?:test|all\([^\]]*\btest\b[^\]]*\)|any\([^\]]*\btest\b[^\]]*\))\)\]"
    r"(?:\s*#\[[^\]]*\])*\s*(?:pub(?:\([a-z]+\))?\s+)?mod\s+(?P<name>\w+)\s*(?P<open>[{;])"
)


def without_tests(code):
    """`code` with its `#[cfg(test)] mod` bodies blanked; and the names of test-only files."""
    outside = []
    at = 0
    out = []
    while match := TEST_MOD.search(code, at):
        end = match.end()
        if match["open"] == ";":
            outside.append(match["name"])
        else:
            depth = 1
            while depth and end < len(code):
                depth += {"{": 1, "}": -1}.get(code[end], 0)
                end += 1
        out.append(code[at : match.start()])
        out.append(blank(code[match.start() : end]))
        at = end
    out.append(code[at:])
    return "".join(out), outside


def lines_before_tests(code):
    """Lines of a file up to its first `#[cfg(test)] mod`."""
    match = TEST_MOD.search(code)
    return code.count("\n", 0, match.start() if match else len(code))


def line_of(text, offset):
    """Line number, from 1, of a character offset."""
    return text.count("\n", 0, offset) + 1


def split_list(text):
    """Splits a `use` list at its top-level commas."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += {"{": 1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]


def expand_use(tree):
    """`a::{b, c::{d, e}}` as a list of plain paths."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        return [re.split(r"\s+as\s+", tree)[0].strip()]
    prefix, body = tree[:brace], tree[brace + 1 : tree.rindex("}")]
    return [prefix.strip() + path for part in split_list(body) for path in expand_use(part)]


USE = re.compile(r"\buse\s+([^;]+);")
INLINE = re.compile(r"(?<![\w:])(?:(?:crate|self)|super(?:\s*::\s*super)*)(?:\s*::\s*\w+)+")
CHILD = re.compile(r"\bmod\s+(\w+)\s*;")


def paths_in(code):
    """Every path to another module that `code` names, with its offset."""
    for match in USE.finditer(code):
        for path in expand_use(match[1]):
            yield re.sub(r"\s", "", path), match.start()
    for match in INLINE.finditer(code):
        yield re.sub(r"\s", "", match[0]), match.start()


def resolve(path, module, children):
    """An absolute module path (without `crate`) for a path used in `module`, or None."""
    steps = path.removeprefix("::").split("::")
    base = list(module)
    if steps[0] == "crate":
        return steps[1:]
    if steps[0] == "self":
        return base + steps[1:]
    if steps[0] == "super":
        while steps and steps[0] == "super":
            base = base[:-1]
            steps = steps[1:]
        return base + steps
    if steps[0] in children:
        return base + steps
    return None


def inside(path, module):
    """Whether the path `path` lies in the module `module` (both lists of names)."""
    return path[: len(module)] == module


class Tree:
    """The sources under one root."""

    def __init__(self, root):
        self.root = Path(root)
        self.violations = []
        self.sources = {}
        for path in sorted(self.root.rglob("*.rs")):
            rel = path.relative_to(self.root)
            if not SKIPPED_DIRS.intersection(rel.parts):
                self.sources[rel] = path.read_text(encoding="utf-8")
        self.code = {rel: code_only(text) for rel, text in self.sources.items()}
        self.tested = {}
        test_files = set()
        for rel, code in self.code.items():
            self.tested[rel], names = without_tests(code)
            folder = rel.parent if rel.stem in ("lib", "main", "mod") else rel.with_suffix("")
            for name in names:
                test_files.add(folder / f"{name}.rs")
                test_files.add(folder / name / "mod.rs")
        self.is_test = {
            rel: rel in test_files or {"tests", "benches", "fuzz"}.intersection(rel.parts[:-1])
            for rel in self.code
        }

    def add(self, rel, line, rule, advice):
        """Notes a violation."""
        self.violations.append(Violation(str(rel), line, rule, advice))

    def check(self):
        """All violations, in order of place."""
        self.crate_imports()
        self.stage_imports()
        self.stage_order()
        self.unsafe_list()
        self.file_lengths()
        self.forbidden_words()
        self.module_docs()
        self.uncompiled()
        self.import_cycles()
        self.unnamed_pub()
        self.signatures()
        return sorted(set(self.violations))

    def crate_imports(self):
        """Dependencies between our crates go one way only."""
        manifests = [
            p
            for p in sorted(self.root.rglob("Cargo.toml"))
            if not SKIPPED_DIRS.intersection(p.relative_to(self.root).parts)
        ]
        parsed = {p: tomllib.loads(p.read_text(encoding="utf-8")) for p in manifests}
        ours = {t["package"]["name"] for t in parsed.values() if "package" in t}
        for path, table in parsed.items():
            if "package" not in table:
                continue
            name = table["package"]["name"]
            rel = path.relative_to(self.root)
            if name not in CRATE_IMPORTS:
                self.add(rel, 1, "crate-imports", f"say in check_structure.py what {name} may import")
                continue
            for kind in ("dependencies", "build-dependencies", "dev-dependencies"):
                allowed = CRATE_IMPORTS[name] | {name}
                if kind == "dev-dependencies":
                    allowed = allowed | CRATE_DEV_IMPORTS.get(name, set())
                tables = [table, *table.get("target", {}).values()]
                for dep, spec in ((d, s) for t in tables for d, s in t.get(kind, {}).items()):
                    real = spec.get("package", dep) if isinstance(spec, dict) else dep
                    # One of the registry's may have the name of one of ours.
                    is_ours = real in ours and isinstance(spec, dict) and "path" in spec
                    if is_ours and real not in allowed:
                        self.add(rel, 1, "crate-imports", f"{name} may not depend on {real} ({kind})")

    def stages(self):
        """The stages as `stages/mod.rs` names them, in packet order."""
        return CHILD.findall(self.code.get(Path(STAGES, "mod.rs"), ""))

    def stage_of(self, path):
        """The stage that a module path (below `dataplane/src`) lies in, as a path below `stages`."""
        if path[:1] != ["stages"] or len(path) < 2 or path[1] not in self.stages():
            return None
        if path[1] in ONE_FILE_EACH:
            return "::".join(path[1:3]) if len(path) > 2 else None
        return path[1]

    def stage_imports(self):
        """Stages never import one another, and nobody imports a stage but the worker."""
        src = Path("dataplane/src")
        for rel, code in self.tested.items():
            if src not in rel.parents or self.is_test[rel]:
                continue
            module = list(rel.relative_to(src).with_suffix("").parts)
            if module[-1] in ("lib", "mod"):
                module.pop()
            if not module or module[0] in KNOWS_ALL_STAGES:
                continue
            own = self.stage_of(module)
            children = set(CHILD.findall(code))
            for path, offset in paths_in(code):
                target = resolve(path, module, children)
                stage = self.stage_of(target) if target is not None else None
                declares = inside(target or [], module) and own is None
                if stage is not None and stage != own and not declares:
                    self.add(
                        rel, line_of(code, offset), "stage-imports",
                        f"{'::'.join(module)} may not reach the stage {stage}; "
                        "move what both need out of stages/, and let worker.rs join the stages",
                    )

    def stage_order(self):
        """The directory of the stages, its `mod` lines and the pictures name the same, in one order."""
        stages = self.stages()
        if not stages:
            return
        folder = Path(STAGES)
        there = {rel.relative_to(folder).parts[0].removesuffix(".rs") for rel in self.code if folder in rel.parents}
        for name in sorted(there - {"mod"} - set(stages)):
            self.add(folder / "mod.rs", 1, "stage-order", f"{name} lies in {STAGES} and has no mod line")
        for page in PICTURES:
            path = self.root / page
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            block = next((b for b in re.finditer(r"```\n(.*?)```", text, re.S) if "driver-shim" in b[1]), None)
            if block is None:
                self.add(page, 1, "stage-order", "has no picture of the stages")
                continue
            shown = list(dict.fromkeys(w for w in re.findall(r"(?<![\w:/`])\w+", block[1]) if w in stages))
            if shown != stages:
                self.add(
                    page, line_of(text, block.start()), "stage-order",
                    f"the picture has {', '.join(shown)}; {STAGES}/mod.rs has {', '.join(stages)}",
                )
        for page in PICTURES[1:]:
            path = self.root / page
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            visited = list(dict.fromkeys(s for s in re.findall(rf"`{STAGES}/(\w+)", text) if s in stages))
            if visited != stages:
                self.add(
                    page, 1, "stage-order",
                    f"walks through {', '.join(visited)}; {STAGES}/mod.rs has {', '.join(stages)}",
                )

    def uncompiled(self):
        """Each file of a crate's is a module of another one's."""
        by_path = {Path(path).name for text in self.sources.values() for path in re.findall(r'#\[path = "([^"]+)"', text)}
        for rel in self.code:
            name, folder = (rel.parent.name, rel.parent.parent) if rel.stem == "mod" else (rel.stem, rel.parent)
            src = next((p for p in (folder, *folder.parents) if p.name == "src"), None)
            roots = [src / "lib.rs", src / "main.rs"] if src else []
            if not any(root in self.code for root in roots) or rel in roots or src / "bin" in rel.parents or rel.name in by_path or str(src) == FOREIGN:
                continue
            parents = roots if folder == src else [folder / "mod.rs", folder.with_suffix(".rs")]
            if not any(re.search(rf"\bmod {name}\b", self.code.get(parent, "")) for parent in parents):
                self.add(rel, 1, "uncompiled", "no file has a mod line for it: delete it, or write one")

    def import_cycles(self):
        """Files import one another in no circles."""
        for folder, circles in import_cycles.find(self, sys.modules[__name__]).items():
            for circle in circles:
                self.add(folder, 1, "import-cycle", f"{', '.join(circle)} import one another in a circle: take it apart")

    def unnamed_pub(self):
        """What is `pub` is named by another file."""
        for rel, line, name in unnamed_pub.find(self):
            self.add(rel, line, "unnamed-pub", f"no other file names {name}: make it private, or delete it")

    def signatures(self):
        """What carries out commands takes a context, a command and a sink."""
        for rel, code in self.tested.items():
            if Path(COMMANDS) not in rel.parents or self.is_test[rel]:
                continue
            for match in re.finditer(r"\bfn (\w+)(?:<[^(]*>)?\(", code):
                depth, end = 1, match.end()
                while depth and end < len(code):
                    depth += {"(": 1, ")": -1}.get(code[end], 0)
                    end += 1
                # Each has a colon and a type; the colons of a path are two.
                arguments = re.findall(r"(?<!:):(?!:)", code[match.end() : end])
                if len(arguments) > COMMAND_ARGUMENTS:
                    self.add(
                        rel, line_of(code, match.start()), "signature",
                        f"{match[1]} takes {len(arguments)}; at most {COMMAND_ARGUMENTS}: a context, a command and a sink",
                    )

    def unsafe_list(self):
        """docs/unsafe.md names exactly the files that hold unsafe code."""
        doc = self.root / "docs/unsafe.md"
        text = doc.read_text(encoding="utf-8") if doc.exists() else ""
        named = {}
        for number, line in enumerate(text.splitlines(), 1):
            for path in re.findall(r"`([\w./-]+\.rs)`", line):
                named.setdefault(path, number)
        for rel, code in self.code.items():
            word = re.search(r"\bunsafe\b", code)
            if word and str(rel) not in named:
                self.add(
                    rel, line_of(code, word.start()), "unsafe-list",
                    "name the file in docs/unsafe.md, with what makes it sound",
                )
            if not word and str(rel) in named:
                self.add("docs/unsafe.md", named[str(rel)], "unsafe-list", f"{rel} holds no unsafe code: strike it")
        for path, number in named.items():
            if Path(path) not in self.code:
                self.add("docs/unsafe.md", number, "unsafe-list", f"there is no {path}: strike it")

    def file_lengths(self):
        """No file outgrows its reader."""
        for rel, code in self.code.items():
            lines = lines_before_tests(code)
            if lines > LINES_MAX and not self.is_test[rel]:
                self.add(rel, LINES_MAX, "file-length", f"{lines} lines before its tests; at most {LINES_MAX}: split it")

    def forbidden_words(self):
        """No panics by shortcut and nothing unfinished outside tests."""
        for rel, code in self.tested.items():
            if not self.is_test[rel]:
                for pattern, advice in FORBIDDEN.items():
                    for match in re.finditer(pattern, code):
                        self.add(rel, line_of(code, match.start()), "forbidden-word", advice)
        for rel, text in self.sources.items():
            for match in re.finditer(r"\b(?:TODO|FIXME|XXX)\b", text):
                self.add(rel, line_of(text, match.start()), "forbidden-word", "do it, or open an issue")

    def module_docs(self):
        """Each file says at its top what it is."""
        for rel, text in self.sources.items():
            if not self.is_test[rel] and not re.match(r"(?:\s*#!\[[^\]]*\]\s*)*//!", text):
                self.add(rel, 1, "module-doc", "begin with a //! line: what enters, what leaves, who owns, what can fail")


def main(argv):
    """Checks the tree named on the command line, or the one this script stands in."""
    root = Path(argv[1]) if len(argv) > 1 else Path(__file__).resolve().parent.parent
    tree = Tree(root)
    violations = tree.check()
    for violation in violations:
        print(violation)
    print(f"structure: {len(tree.sources)} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
