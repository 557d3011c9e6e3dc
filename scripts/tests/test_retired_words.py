"""retired_words.py finds a planted word, and passes over names in backticks."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import retired_words  # noqa: E402


def found(text):
    """The words found in a tree whose one page has this text."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "docs").mkdir()
        (root / "docs" / "page.md").write_text(text, encoding="utf-8")
        return [(str(path), line, word) for path, line, word, _ in retired_words.find(root)]


def found_in(source, path="a.rs"):
    """The same for a tree with this source alone."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
        return [(line, word) for _, line, word, _ in retired_words.find(Path(folder))]


class Words(unittest.TestCase):
    def test_a_planted_word_is_found(self):
        self.assertEqual(found("First.\nThe side door is up.\n"), [("docs/page.md", 2, "side door")])
        self.assertEqual(found("A client is told so.\n"), [("docs/page.md", 1, "is told")])
        self.assertEqual(found("After room 4.\n"), [("docs/page.md", 1, "room 4")])

    def test_a_planted_word_in_a_comment_is_found(self):
        self.assertEqual(found_in("/// The card is told.\nfn card() {}\n"), [(1, "told"), (1, "card")])
        self.assertEqual(found_in("    // `card`, [`Card`], room for two\n"), [])

    def test_stages_prefetches_and_pools_go_by_these_names(self):
        self.assertEqual(found_in("// All rooms.\n// Through all rooms.\n"), [(1, "All rooms"), (2, "all rooms")])
        self.assertEqual(found_in("/// Asks for the buckets.\n"), [(1, "Asks for the buckets")])
        homes = [(1, "Brings a slot home"), (2, "is home")]
        self.assertEqual(found_in("/// Brings a slot home.\n/// Every slot is home.\n"), homes)
        self.assertEqual(found_in("// The look-up is in vain.\n"), [(1, "in vain")])
        self.assertEqual(found_in("// There is room; asks for a key; `home`, the home node.\n"), [])

    def test_comments_below_src_name_the_role_that_is_meant(self):
        line = "/// Whoever waits, and nobody else, for want of memory.\n"
        words = [(1, "Whoever"), (1, "nobody"), (1, "for want of")]
        self.assertEqual(found_in(line, "store/src/a.rs"), words)
        self.assertEqual(found_in(line, "store/tests/a.rs"), [])
        self.assertEqual(found_in("use clap::Args;\n" + line, "appliance/src/a.rs"), [])

    def test_messages_of_tests_count_as_comments(self):
        line = '    assert!(is_free, "every slot is home");\n'
        self.assertEqual(found_in(line, "gpu/tests/a.rs"), [(1, "is home")])
        self.assertEqual(found_in(line, "gpu/src/a.rs"), [])
        self.assertEqual(found_in('assert_eq!(word, "told");\n', "gpu/src/a/tests.rs"), [])

    def test_names_and_other_senses_pass(self):
        self.assertEqual(found("`--side-door`, `cards`; there is room for two; [x](side door).\n"), [])


if __name__ == "__main__":
    unittest.main()
