"""What a run prints: file by file a line to each check, and at last the sums that scripts/test.sh reads."""

import collections
import pathlib

import pytest
from harness import checks

SHOWN_MAX = 80
"""Lines of what a failed check said."""


class Report:
    """Listens to pytest where the run is led: a check is a subtest, or a test that has none."""

    def __init__(self, config):
        self.line = config.get_terminal_writer().line
        self.beside = bool(config.getoption("numprocesses", None))
        self.sums = not config.getoption("lane")
        self.counts = collections.Counter()
        self.left, self.lines, self.times, self.failed_inside, self.with_checks = {}, {}, {}, set(), set()

    # --- who runs ---------------------------------------------------------------------------------

    def expect(self, ids):
        """The tests of each file."""
        self.left = collections.Counter(file_of(nodeid) for nodeid in ids)

    def pytest_collection_finish(self, session):
        self.expect([] if self.beside else [item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids):
        self.expect(ids)

    # --- what they say ----------------------------------------------------------------------------

    def say(self, file, text):
        """Shown at once, or with the rest of its file when several run side by side."""
        if self.beside:
            self.lines.setdefault(file, []).append(text)
        else:
            self.line(text)

    def judged(self, file, outcome, name, why=""):
        """One check."""
        self.counts[outcome] += 1
        first, *rest = why.strip().splitlines() or [""]
        if outcome == "passed":
            self.say(file, f"ok      {name}")
        elif outcome == "skipped":
            self.say(file, f"skipped {name}: {first}")
        else:
            self.say(file, f"FAILED  {name}" + (f": {first}" if first else ""))
            for line in rest[-SHOWN_MAX:]:
                self.say(file, f"        | {line}")

    def pytest_collectreport(self, report):
        if report.failed:
            self.judged(file_of(report.nodeid), "failed", report.nodeid, f"cannot be read\n{report.longreprtext}")

    def pytest_runtest_logreport(self, report):
        nodeid, file = report.nodeid, file_of(report.nodeid)
        began, _ = self.times.get(file, (report.start, None))
        self.times[file] = began, report.stop
        why = str(report.longrepr) if report.failed else ""
        if report.skipped:
            why = str(report.longrepr[2]).removeprefix("Skipped: ")
        if isinstance(report, pytest.SubtestReport):
            self.with_checks.add(nodeid)
            if report.failed:
                self.failed_inside.add(nodeid)
            self.judged(file, report.outcome, report.context.msg, why)
            return
        if report.when == "call":
            for name, note in report.user_properties:
                self.say(file, f"{name:8}{note}")
        name = f"{file}: {nodeid.partition('::')[2]}"
        if report.failed and not (nodeid in self.failed_inside and why == checks.ENDS):
            self.judged(file, "failed", name, why)
        elif report.skipped or report.when == "call" and report.passed and nodeid not in self.with_checks:
            self.judged(file, report.outcome, name, why)

    def pytest_runtest_logfinish(self, nodeid):
        file = file_of(nodeid)
        self.left[file] -= 1
        if self.left[file] == 0:
            began, ended = self.times.get(file, (0, 0))
            self.line(f"-- {file}, {ended - began:.0f} s")
            for text in self.lines.pop(file, ()):
                self.line(text)

    def pytest_unconfigure(self):
        for file in list(self.lines):
            self.line(f"-- {file}, not to its end")
            for text in self.lines.pop(file):
                self.line(text)
        if self.sums:
            if self.counts["skipped"]:
                self.line(f"{self.counts['skipped']} skipped")
            self.line(f"{self.counts['passed']} passed, {self.counts['failed']} failed")


def file_of(nodeid):
    """tests/e2e/test_loopback.py::test_edges: loopback."""
    return pathlib.PurePath(nodeid.partition("::")[0]).stem.removeprefix("test_")


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report):
    """No letters; and a test whose subtests fail is not counted as one more."""
    return report.outcome, "", ""
