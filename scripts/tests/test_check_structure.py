"""Each rule of check_structure.py fails on a planted violation and passes without it."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import check_structure as cs  # noqa: E402

CRATES = {
    "Cargo.toml": '[package]\nname = "gnomon"\n[dependencies]\ndataplane = { path = "dataplane" }\n',
    "dataplane/Cargo.toml": '[package]\nname = "dataplane"\n[dependencies]\ngpu = { path = "../gpu" }\n',
    "gpu/Cargo.toml": '[package]\nname = "gpu"\n[dependencies]\n',
    "docs/unsafe.md": "",
}


PICTURE = "```\nmake demo\n```\n```\nNIC ► driver-shim ► rx ► exits ► tx\n```\n"
STAGES = {
    "README.md": PICTURE,
    "docs/packet-journey.md": PICTURE
    + "`dataplane/src/stages/rx.rs`, `dataplane/src/stages/exits`, `dataplane/src/stages/tx.rs`\n",
    "dataplane/src/stages/mod.rs": "//! The stages.\npub mod rx;\npub mod exits;\npub mod tx;\n",
    "dataplane/src/stages/rx.rs": "//! A file.\n",
    "dataplane/src/stages/exits/mod.rs": "//! A file.\npub mod respond;\npub mod refuse_fragment;\n",
    "dataplane/src/stages/exits/respond.rs": "//! A file.\n",
    "dataplane/src/stages/exits/refuse_fragment.rs": "//! A file.\n",
    "dataplane/src/stages/tx.rs": "//! A file.\n",
}


def check(extra):
    """Rules broken by a small sound tree with `extra` files laid over it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**CRATES, **extra}.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return [(v.rule, v.path, v.line) for v in cs.Tree(folder).check()]


def rs(body):
    """A source file with its module doc."""
    return "//! A file.\n" + body


class Rules(unittest.TestCase):
    def test_the_sound_tree_passes(self):
        self.assertEqual(check({}), [])

    def test_each_file_is_compiled(self):
        tree = {"gpu/src/lib.rs": rs("mod a;\n"), "gpu/src/a.rs": rs("mod c;\n"), "gpu/src/a/c.rs": rs(""), "gpu/src/a/d.rs": rs("")}
        self.assertEqual(check(tree), [("uncompiled", "gpu/src/a/d.rs", 1)])
        folder = {"gpu/src/lib.rs": rs("mod a;\n"), "gpu/src/a/mod.rs": rs('#[path = "../d.rs"]\nmod c;\n'), "gpu/src/d.rs": rs("")}
        self.assertEqual(check(folder), [])
        self.assertEqual(check({**folder, "gpu/src/lib.rs": rs("")}), [("uncompiled", "gpu/src/a/mod.rs", 1)])

    def test_a_pub_item_is_named_by_another_file(self):
        lib = rs("pub mod a;\npub use a::{Kept, lonely};\n")
        a = rs("pub fn lonely() -> Kept { Kept }\npub struct Kept;\n// pub fn in_a_comment() {}\n")
        tree = {"gpu/src/lib.rs": lib, "gpu/src/a.rs": a}
        self.assertEqual(check(tree), [("unnamed-pub", "gpu/src/a.rs", 2)])
        self.assertEqual(check({**tree, "gpu/tests/t.rs": rs("fn t() { gpu::lonely(); }\n")}), [])
        unused = {**tree, "gpu/src/a.rs": rs("fn lonely() {}\npub struct Kept;\n")}
        self.assertEqual(check(unused), [("unnamed-pub", "gpu/src/a.rs", 3)])

    def test_crates_import_downward_only(self):
        upward = '[package]\nname = "gpu"\n[dependencies]\ndataplane = { path = "../dataplane" }\n'
        self.assertEqual(check({"gpu/Cargo.toml": upward}), [("crate-imports", "gpu/Cargo.toml", 1)])
        dev = upward.replace("[dependencies]", "[dev-dependencies]")
        self.assertEqual(check({"gpu/Cargo.toml": dev}), [("crate-imports", "gpu/Cargo.toml", 1)])
        target = upward.replace("[dependencies]", "[target.'cfg(unix)'.dependencies]")
        self.assertEqual(check({"gpu/Cargo.toml": target}), [("crate-imports", "gpu/Cargo.toml", 1)])
        renamed = '[package]\nname = "gpu"\n[dependencies]\nx = { package = "dataplane", path = "../dataplane" }\n'
        self.assertEqual(check({"gpu/Cargo.toml": renamed}), [("crate-imports", "gpu/Cargo.toml", 1)])
        beside = {"dataplane/wire/Cargo.toml": '[package]\nname = "wire"\n', "dataplane/store/Cargo.toml": '[package]\nname = "store"\n'}
        self.assertEqual(check(beside), [])
        beside["dataplane/store/Cargo.toml"] += '[dependencies]\nwire = { path = "../wire" }\n'
        self.assertEqual(check(beside), [("crate-imports", "dataplane/store/Cargo.toml", 1)])

    def test_a_new_crate_must_be_placed(self):
        self.assertEqual(
            check({"extra/Cargo.toml": '[package]\nname = "extra"\n'}),
            [("crate-imports", "extra/Cargo.toml", 1)],
        )

    def test_a_stage_imports_no_other_stage(self):
        bad = [
            "use crate::stages::tx::Tx;\n",
            "use crate::{counters::Counter, stages::tx};\n",
            "use super::tx::Tx;\n",
            "fn f() { crate::stages::tx::send() }\n",
            "use crate::{counters, stages::exits::{respond, refuse_fragment}};\n",
        ]
        for body in bad:
            with self.subTest(body):
                self.assertEqual(
                    check({**STAGES, "dataplane/src/stages/rx.rs": rs(body)})[:1],
                    [("stage-imports", "dataplane/src/stages/rx.rs", 2)],
                )
        good = "use wire::eth;\nuse crate::counters::Counter;\nuse driver_shim::Frame;\n"
        self.assertEqual(check({**STAGES, "dataplane/src/stages/rx.rs": rs(good)}), [])
        beside = "use super::respond::X;\n"
        self.assertEqual(
            check({**STAGES, "dataplane/src/stages/exits/refuse_fragment.rs": rs(beside)}),
            [("stage-imports", "dataplane/src/stages/exits/refuse_fragment.rs", 2)],
        )
        own = "use super::Stamp;\nuse crate::stages::rx::X;\n"
        self.assertEqual(check({**STAGES, "dataplane/src/stages/rx/poll.rs": rs(own)}), [])

    def test_what_stages_share_imports_no_stage(self):
        self.assertEqual(
            check({**STAGES, "dataplane/src/observe/mod.rs": rs("use crate::stages::tx::Tx;\n")}),
            [("stage-imports", "dataplane/src/observe/mod.rs", 2)],
        )

    def test_only_the_worker_knows_the_order(self):
        body = rs("use crate::stages::rx::Rx;\nuse crate::stages::tx::Tx;\n")
        self.assertEqual(check({**STAGES, "dataplane/src/worker.rs": body}), [])
        self.assertEqual(len(check({**STAGES, "dataplane/src/counters.rs": body})), 2)

    def test_imports_in_tests_and_comments_do_not_count(self):
        body = (
            "// use crate::stages::tx::Tx;\n#[cfg(test)]\nmod tests {\n    use crate::stages::tx::Tx;\n"
            "    fn f() { if true {} }\n}\n"
        )
        self.assertEqual(check({**STAGES, "dataplane/src/stages/rx.rs": rs(body)}), [])
        after = body + "use crate::stages::tx::Tx;\n"
        self.assertEqual(
            check({**STAGES, "dataplane/src/stages/rx.rs": rs(after)}),
            [("stage-imports", "dataplane/src/stages/rx.rs", 8)],
        )

    def test_directory_mod_lines_and_pictures_agree(self):
        self.assertEqual(check(STAGES), [])
        rules = lambda extra: [(rule, path) for rule, path, _ in check({**STAGES, **extra})]  # noqa: E731
        unlisted = {"dataplane/src/stages/late.rs": rs("")}
        self.assertEqual(rules(unlisted), [("stage-order", "dataplane/src/stages/mod.rs")])
        for page in ("README.md", "docs/packet-journey.md"):
            other_order = STAGES[page].replace("rx ► exits", "exits ► rx")
            self.assertEqual(rules({page: other_order}), [("stage-order", page)])
            self.assertEqual(rules({page: STAGES[page].replace("exits ► ", "")}), [("stage-order", page)])
            self.assertEqual(rules({page: STAGES[page].replace("driver-shim", "")}), [("stage-order", page)])
        other_way = STAGES["docs/packet-journey.md"].replace("`dataplane/src/stages/exits`", "exits")
        self.assertEqual(rules({"docs/packet-journey.md": other_way}), [("stage-order", "docs/packet-journey.md")])

    def test_unsafe_files_are_listed_and_only_those(self):
        unsafe = {"gpu/src/a.rs": rs("fn f() { unsafe { g() } }\n")}
        self.assertEqual(check(unsafe), [("unsafe-list", "gpu/src/a.rs", 2)])
        listed = {"docs/unsafe.md": "| `gpu/src/a.rs` | why |\n"}
        self.assertEqual(check({**unsafe, **listed}), [])
        safe = {"gpu/src/a.rs": rs('// unsafe\nfn f() -> &\'static str { "unsafe" }\n')}
        self.assertEqual(check(safe), [])
        self.assertEqual(check({**safe, **listed}), [("unsafe-list", "docs/unsafe.md", 1)])
        self.assertEqual(check(listed), [("unsafe-list", "docs/unsafe.md", 1)])

    def test_long_files_are_refused_tests_apart(self):
        long = rs("fn f() {}\n" * cs.LINES_MAX)
        self.assertEqual(check({"gpu/src/a.rs": long}), [("file-length", "gpu/src/a.rs", cs.LINES_MAX)])
        tests = rs("fn f() {}\n#[cfg(test)]\nmod tests {\n" + "    fn f() {}\n" * cs.LINES_MAX + "}\n")
        self.assertEqual(check({"gpu/src/a.rs": tests}), [])

    def test_shortcuts_are_refused_outside_tests(self):
        for body in ["fn f() { unimplemented!() }\n", "fn f() { todo!() }\n", "fn f() { dbg!(1) }\n", "// TODO later\n"]:
            with self.subTest(body):
                self.assertEqual(check({"gpu/src/a.rs": rs(body)}), [("forbidden-word", "gpu/src/a.rs", 2)])
        inside = "#[cfg(test)]\nmod tests {\n    fn f() { todo!() }\n}\n"
        self.assertEqual(check({"gpu/src/a.rs": rs(inside)}), [])
        apart = {"gpu/src/a.rs": rs("#[cfg(test)]\nmod a_tests;\n"), "gpu/src/a/a_tests.rs": rs("fn f() { todo!() }\n")}
        self.assertEqual(check(apart), [])
        self.assertEqual(check({"gpu/tests/it.rs": rs("fn f() { todo!() }\n")}), [])

    def test_every_file_says_what_it_is(self):
        self.assertEqual(check({"gpu/src/a.rs": "fn f() {}\n"}), [("module-doc", "gpu/src/a.rs", 1)])
        self.assertEqual(check({"gpu/src/a.rs": "#![allow(unsafe_code)]\n//! A file.\n"}), [])

    def test_files_import_one_another_in_no_circle(self):
        def circles(extra):
            found = check({"gpu/src/lib.rs": rs("mod a;\nmod b;\npub use b::B;\n"), **extra})
            return [where for rule, where, _ in found if rule == "import-cycle"]

        a, b = {"gpu/src/a.rs": rs("use crate::b::B;\n")}, {"gpu/src/b.rs": rs("use super::a::A;\n")}
        self.assertEqual(circles({**a, "gpu/src/b.rs": rs("")}), [])
        self.assertEqual(circles({**a, **b}), ["gpu/src"])
        inline = {"gpu/src/b.rs": rs("fn f() { crate::a::f() }\n")}
        self.assertEqual(circles({**a, **inline}), ["gpu/src"])
        # By way of a name that the crate's root re-exports.
        through = {"gpu/src/a.rs": rs("use crate::B;\n")}
        self.assertEqual(circles({**through, **b}), ["gpu/src"])
        # What only tests import is no circle.
        tested = {"gpu/src/b.rs": rs("#[cfg(test)]\nmod tests { use crate::a::A; }\n")}
        self.assertEqual(circles({**a, **tested}), [])


class Lexer(unittest.TestCase):
    def test_a_command_takes_a_context_itself_and_a_sink(self):
        lib = {"dataplane/src/lib.rs": rs("mod commands;\n")}
        def signatures(body):
            found = check({**lib, "dataplane/src/commands.rs": rs("mod a;\n"), "dataplane/src/commands/a.rs": rs(body)})
            return [(rule, line) for rule, _, line in found]
        three = "fn f<'a, S: Sink>(\n    &mut self,\n    a: &'a A,\n    (b, c): (b::B, C),\n    d: [D; 2],\n) {}\n"
        self.assertEqual(signatures(three), [])
        self.assertEqual(signatures(three.replace("d:", "e: E,\n    d:")), [("signature", 2)])
        tests = "#[cfg(test)]\nmod tests {\n    fn f(a: A, b: B, c: C, d: D) {}\n}\n"
        self.assertEqual(signatures(tests), [])

    def test_strings_chars_and_comments_are_blanked_in_place(self):
        source = 'a\n/* x /* y */ unsafe */ b "unsafe \\" unsafe" c r#"unsafe " unsafe"# \'"\' d\n// unsafe\ne'
        code = cs.code_only(source)
        self.assertEqual(len(code), len(source))
        self.assertEqual(code.split(), ["a", "b", "c", "d", "e"])

    def test_lifetimes_are_not_characters(self):
        self.assertIn("unsafe", cs.code_only("fn f<'a>(x: &'a u8) { unsafe { g('x') } }"))

    def test_use_trees_unfold(self):
        self.assertEqual(
            cs.expand_use("crate::{a, b::{c as d, e::f}, g}"),
            ["crate::a", "crate::b::c", "crate::b::e::f", "crate::g"],
        )


if __name__ == "__main__":
    unittest.main()
