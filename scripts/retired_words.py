#!/usr/bin/env python3
"""Words of this project's own that the field has words for: none of them may come back.

    scripts/retired_words.py [ROOT]      one line per word: path:line: word: what to say

Looks at README.md, CONTRIBUTING.md, SECURITY.md and docs/ for all of them. docs/configuration.md and docs/metrics.md
are made from help texts, so those are looked at, too. Comments of the sources are searched for those of COMMENTS,
and those below a `src` folder for those of PEOPLE, too. Messages of tests in Rust count as comments.
Code in backticks does not count: names of flags and metrics stay.
"""

import re
import sys
from pathlib import Path

RETIRED = {
    r"side doors?": "exception path",
    r"(?:is|are|was|were|been) told": "gets, is reported, is notified",
    r"tells": "reports, selects, shows",
    r"rooms? \d|(?:all|seven|no|the general) rooms": "stage",
    r"law of (?:frames|D10|packets)|packet law": "packet-accounting invariant",
    r"reply heads?": "reply headers",
    r"cards?": "GPU, device",
    r"(?:goes|go|come|comes|came|is|are|at) home": "returned, freed",
    r"let(?:s|ting)? go": "frees, releases",
    r"(?:stands?|stood|standing) still": "stalled",
    r"taken up": "recovered",
    r"vouch(?:es)?": "untrusted",
    r"middle one": "median",
    r"nanoseconds each": "ns per op",
    r"(?:kernel|system)'s refusal": "OS error",
}
"""What is refused, as a pattern, and what to say instead."""


COMMENTS = {
    r"(?:kernel|system)'s refusal": "OS error",
    r"the long way": "slow path",
    r"side doors?": "exception path",
    r"told|tells?|telling": "gets, is notified; reports, shows; distinguishes",
    r"rooms? \d": "stage",
    r"law of (?:frames|D10|packets)|packet law": "packet-accounting invariant",
    r"cards?": "GPU, device",
    r"(?:goes|go|come|comes|came) home": "returned, freed",
    r"let(?:s|ting)? go": "frees, releases, drops",
    r"(?:stands?|stood|standing) still": "stalled",
    r"taken up": "recovered",
    r"asks the CPU for": "prefetches",
    r"middle one": "median",
    r"nanoseconds each": "ns per op",
    r"(?:[Aa]ll|[Ee]very|[Tt]he) rooms?": "stage",
    r"in vain": "finds nothing, fails",
    r"(?:at|[Bb]rings?(?: \w+)?(?: \w+)?|(?:are|is)(?: all)?) home": "free, returned to the pool",
    r"[Bb]eside (?:another|a second|the other) engine|[Tt]he (?:other|second) engine": "the offload",
    r"[Aa]sks? for (?:another look|(?:the |their )?(?:buckets?|cache lines?|lines?))": "prefetches, queues",
}
"""The same in comments."""

PEOPLE = {
    r"[Ww]hoever|[Nn]obody": "the reader, writer, client or thread",
    r"[Ss]ome(?:body|one)|[Aa]ny(?:body|one)|[Ee]very(?:body|one)": "a reader, writer, client or thread",
    r"for who": "for a caller that",
    r"[Ff]or want of": "for lack of",
}
"""The same in comments below a `src` folder, but for files with flags: doc comments there are help texts."""

SOURCES = ("*.rs", "*.cu", "*.h", "*.cc")
COMMENT = re.compile(r"^\s*//[/!]?(.*)$")
MESSAGE = re.compile(r'"([^"]* [^"]*)"[,);]*$')


def names_roles(parts, text):
    """Whether comments in this file are to name the role that they mean."""
    return "src" in parts and not re.search(r"\bclap\b", text)


def find_in_comments(root):
    """The same of each word of COMMENTS, and of PEOPLE where it counts, in a comment."""
    for path in sorted(p for kind in SOURCES for p in root.rglob(kind)):
        if {"target", ".git"}.intersection(path.relative_to(root).parts):
            continue
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(root).parts
        is_test = parts[0] != "tests" and ({"tests", "bodies"}.intersection(parts) or path.stem == "tests")
        words = COMMENTS | (PEOPLE if names_roles(parts, text) else {})
        for number, line in enumerate(text.splitlines(), 1):
            comment = COMMENT.match(line) or (is_test and MESSAGE.search(line))
            prose = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", "", comment[1]) if comment else ""
            for pattern, advice in words.items():
                for match in re.finditer(rf"\b(?:{pattern})\b", prose):
                    yield path.relative_to(root), number, match[0], advice


def find(root):
    """`(path, line, word, advice)` of each retired word below `root`."""
    yield from find_in_comments(root)
    pages = [root / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted((root / "docs").rglob("*.md"))
    for page in pages:
        if not page.exists():
            continue
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)
            for pattern, advice in RETIRED.items():
                for match in re.finditer(rf"\b(?:{pattern})\b", prose, re.IGNORECASE):
                    yield page.relative_to(root), number, match[0], advice


def main(argv):
    """Prints what was found."""
    found = list(find(Path(argv[1]) if len(argv) > 1 else Path(__file__).resolve().parent.parent))
    for path, number, word, advice in found:
        print(f"{path}:{number}: {word}: say {advice}")
    print(f"words: {len(found)} retired ones")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
