"""scripts/console.py notices when a page says otherwise than the shell."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import console

PAGE = """
## One
```console
$ echo a; echo b
a
b
$ true
```
```
$ not for typing
```
## Two
```console
$ echo c
c
```
"""


class Console(unittest.TestCase):
    def run_one(self, command, output):
        shell = console.Shell(["bash"])
        try:
            return shell.run(command, output and console.pattern(output), 30)[1]
        finally:
            shell.end()

    def test_commands_are_taken_by_section(self):
        self.assertEqual(console.commands(PAGE, []), [("echo a; echo b", "a\nb\n"), ("true", None), ("echo c", "c\n")])
        self.assertEqual(console.commands(PAGE, ["Two"]), [("echo c", "c\n")])

    def test_what_the_page_says_is_the_whole_output(self):
        self.assertIsNone(self.run_one("echo a; echo b", "a\nb\n"))
        self.assertIsNone(self.run_one("seq 9", "1\n…\n9\n"))
        self.assertIsNone(self.run_one("echo abc", "a…c\n"))
        self.assertIsNone(self.run_one("echo anything", None))

    def test_background_output_may_come_later(self):
        self.assertIsNone(self.run_one("(sleep 1; echo late) &", "late\n"))

    def test_faults_are_noticed(self):
        console.LATER_S = 0.5
        self.assertEqual(self.run_one("echo a; echo b", "a\n"), "the page says otherwise")
        self.assertEqual(self.run_one("echo a.c", "abc\n"), "the page says otherwise")
        self.assertEqual(self.run_one("false", None), "status 1")
        self.assertEqual(self.run_one("exit 0", None), "the shell ended")


if __name__ == "__main__":
    unittest.main()
