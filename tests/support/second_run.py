# SPDX-License-Identifier: Apache-2.0
"""A plug-in of pytest: a test that failed by a `Deadline` alone runs once more, alone, after all others.

If it passes then, it is flaky: the closing lines say so, and with ELASTICJOB_FLAKY=FILE that file (JSON, `[]` if there
is none) lists it with both outputs; without such a file the first output is printed. Up to `MOST_FLAKY` of them are let
through; more are failures. A test that fails in any other way is never run again, and one that fails again is a failure
with both outputs.

The second run is a pytest of its own, so that every fixture is new and it is the same for tests that pytest-xdist
spread. Runs that share the file are one run: its tests are counted together, and a second run waits until no other of
them goes on.

With ELASTICJOB_REPORTS=FILE each test's reports are appended to that file as lines of JSON, and nothing runs twice: so
the second run tells the first, and `make flakes` is told.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import queue
import subprocess
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from support.waiting import Deadline

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

MOST_FLAKY = 2  # of all that is one run
MOST_AGAIN = 10  # of one pytest: where more time out, something is broken
FLAKY, REPORTS, PART = "ELASTICJOB_FLAKY", "ELASTICJOB_REPORTS", "ELASTICJOB_PART"

TIMED_OUT = "timed out"

_TIMEOUTS = (Deadline, TimeoutError, asyncio.CancelledError, subprocess.TimeoutExpired, queue.Empty)
_AGAIN = "again"  # the attribute of a report that says so; it travels with it between processes


def timed_out(error: BaseException) -> bool:
    """Whether it is a `Deadline`, or a group of nothing else, and nothing else failed before or beneath it."""
    if isinstance(error, BaseExceptionGroup):
        return _only_timeouts(error.__context__) and all(map(timed_out, error.exceptions))
    return isinstance(error, Deadline) and _only_timeouts(error)


def _only_timeouts(error: BaseException | None) -> bool:
    """Whether it, and what it was raised from or while that was dealt with, are timeouts. `from None` hides nothing."""
    if error is None:
        return True
    within = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    of_it = isinstance(error, (*_TIMEOUTS, BaseExceptionGroup))
    return of_it and all(map(_only_timeouts, (*within, error.__cause__, error.__context__)))


def run_again(item: pytest.Item, report: pytest.TestReport) -> None:
    """Let a test that failed so be run once more: for what shows that it was the machine's fault."""
    assert item.parent
    setattr(report, _AGAIN, f"{item.parent.nodeid}::{item.name}")  # its own name, whatever group pytest-xdist adds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo and timed_out(call.excinfo.value):
        run_again(item, report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    # of this run, and not of those that its tests may start
    reports, flaky = os.environ.pop(REPORTS, ""), os.environ.pop(FLAKY, "")
    config.pluginmanager.register(Reports(config, Path(reports)) if reports else SecondRun(config, flaky))


class Reports:
    """Appends what each test reported to a file."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config, self._path = config, path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with self._path.open("ab", buffering=0) as file:  # one write: several processes may append
            file.write(json.dumps(data, default=str).encode() + b"\n")


class SecondRun:
    """Holds back what failed by a deadline until its second run, which settles it."""

    def __init__(self, config: pytest.Config, file: str) -> None:
        self._config = config
        self._reports: dict[str, list[pytest.TestReport]] = defaultdict(list)  # of tests, by node id
        self._names: dict[str, str] = {}  # of those that timed out, as pytest is asked for them
        self._lines: list[str] = []
        self._file: IO[str] | None = None
        if file:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            self._file = Path(file).open("a+")  # noqa: SIM115 - held as long as the tests run
            fcntl.flock(self._file, fcntl.LOCK_SH)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return (TIMED_OUT, "D", "TIMED OUT") if report.failed and hasattr(report, _AGAIN) else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports[report.nodeid].append(report)
        if report.failed and (name := getattr(report, _AGAIN, None)):  # none that somebody has interrupted
            self._names[report.nodeid] = name

    @pytest.hookimpl(trylast=True)  # when all fixtures and the processes of pytest-xdist have ended
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._names:
            self._settle(session)
        if self._file:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # also where a process that a test left behind has it open
            self._file.close()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._lines:
            terminalreporter.section("timed out, and passed when run again, alone")
        for line in self._lines:
            terminalreporter.write_line(line)

    def _settle(self, session: pytest.Session) -> None:
        again = {id: name for id, name in self._names.items() if all(map(_passed_or_timed_out, self._reports[id]))}
        second, why_not = self._run_again(session, again)
        for id in second:
            self._tell_others(second[id])
        flaky = [id for id in again if _passed(second.get(id, []))]
        if flaky and not self._let_through([self._entry(id, second[id]) for id in flaky]):
            flaky = []
        stats = self._config.pluginmanager.get_plugin("terminalreporter").stats
        stats.pop(TIMED_OUT, None)
        for id in self._names:
            failed = [report for report in self._reports[id] if report.failed]
            if id in flaky:
                stats["passed"] = [report for report in stats.get("passed", []) if report.nodeid != id]
                stats.setdefault("flaky", []).append(failed[0])
                session.testsfailed -= len(failed)
                continue
            if id in again:
                failed[-1].sections.append(("second run, alone", _output(second[id]) if id in second else why_not))
            for report in failed:
                if hasattr(report, _AGAIN):
                    delattr(report, _AGAIN)
                    category = self._config.hook.pytest_report_teststatus(report=report, config=self._config)[0]
                    stats.setdefault(category, []).append(report)
        if not session.testsfailed and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = pytest.ExitCode.OK

    def _run_again(
        self, session: pytest.Session, again: dict[str, str]
    ) -> tuple[dict[str, list[pytest.TestReport]], str]:
        """What the second run reports of each test, and why it says nothing of the others."""
        if not again:
            return {}, ""
        if session.shouldstop or session.shouldfail or session.exitstatus != pytest.ExitCode.TESTS_FAILED:
            return {}, "none: the run was stopped"
        if len(again) > MOST_AGAIN:
            return {}, f"none: {len(again)} tests timed out, and no more than {MOST_AGAIN} are run again"
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        terminal.ensure_newline()
        terminal.write_line(f"{len(again)} timed out: once more, alone, when no other tests run")
        if self._file:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # two that wait for each other's end would wait for ever
            fcntl.flock(self._file, fcntl.LOCK_EX)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "reports"
            path.touch()
            done = subprocess.run(
                self._command(again.values()),
                cwd=self._config.invocation_params.dir,
                env={**os.environ, REPORTS: str(path)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            reports = read_reports(self._config, path)
        ids = {name: id for id, name in again.items()}
        second: dict[str, list[pytest.TestReport]] = defaultdict(list)
        for report in reports:
            if report.nodeid in ids:
                report.nodeid = ids[report.nodeid]
                second[report.nodeid].append(report)
        return second, f"it said nothing of this test, and ended with code {done.returncode}:\n{done.stdout}"

    def _command(self, names: Iterable[str]) -> list[str]:
        """This run's, with its options, for these tests only and in one process."""
        options = list(self._config.invocation_params.args)
        for argument in self._config.option.file_or_dir:
            position = len(options) - 1 - options[::-1].index(argument)
            del options[position]
        if self._config.pluginmanager.hasplugin("xdist"):
            options += ["-n0"]
        return [sys.executable, "-m", "pytest", *options, *(f"{self._config.rootpath / name}" for name in names)]

    def _tell_others(self, reports: list[pytest.TestReport]) -> None:
        """The other plug-ins but those that count."""
        manager = self._config.pluginmanager
        counting = [manager.get_plugin("terminalreporter"), manager.get_plugin("session"), self]
        for report in reports:
            manager.subset_hook_caller("pytest_runtest_logreport", counting)(report=report)

    def _let_through(self, entries: list[dict[str, str]]) -> bool:
        """Add flaky tests to the file, and say whether the run has few enough of them."""
        known: list[dict[str, str]] = []
        if self._file:
            self._file.seek(0)
            known = json.loads(self._file.read() or "[]")
            self._file.truncate(0)
            self._file.write(json.dumps([*known, *entries], indent=1) + "\n")
            self._file.flush()
        for entry in entries:
            self._lines += [_line(entry)] if self._file else [_line(entry), *entry["first"].splitlines()]
        number = len(known) + len(entries)
        if number > MOST_FLAKY:
            self._lines.append(f"{number} flaky tests in this run, and {MOST_FLAKY} at most are let through")
        return number <= MOST_FLAKY

    def _entry(self, id: str, second: list[pytest.TestReport]) -> dict[str, str]:
        failed = [report for report in self._reports[id] if report.failed]
        folders = Path(id.partition("::")[0]).parts
        return {
            "test": self._names[id],
            "part": os.environ.get(PART) or "/".join(folders[1:2]),  # tests/unit/...: unit
            "when": ", ".join(str(report.when) for report in failed),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "why": crash(failed[0])[1],
            "first": _output(self._reports[id]),
            "second": _output(second),
        }


def read_reports(config: pytest.Config, path: Path) -> list[pytest.TestReport]:
    lines = path.read_text().splitlines()
    return [config.hook.pytest_report_from_serializable(config=config, data=json.loads(line)) for line in lines]


def crash(report: pytest.TestReport) -> tuple[str, str]:
    """Where a test failed, and the first line of why."""
    found = getattr(report.longrepr, "reprcrash", None)
    text = found.message if found else report.longreprtext.strip()
    return f"{found.path}:{found.lineno}" if found else report.nodeid, next(iter(text.splitlines()), "")


def _line(entry: dict[str, str]) -> str:
    return f"FLAKY {entry['test']} ({entry['part']}) - {entry['why']}"


def _passed_or_timed_out(report: pytest.TestReport) -> bool:
    return not report.failed or hasattr(report, _AGAIN)


def _passed(reports: list[pytest.TestReport]) -> bool:
    return any(report.when == "call" and report.passed for report in reports) and not any(
        report.failed for report in reports
    )


def _output(reports: list[pytest.TestReport]) -> str:
    """What a test has printed, and why it failed if it did."""
    parts = []
    for report in reports:
        parts.append(f"{report.when}: {report.outcome} in {report.duration:.1f} s")
        parts += [report.longreprtext] if report.failed else []
    last = reports[-1].sections if reports else []
    for title, text in [*last, *(section for one in reports for section in one.sections if section not in last)]:
        parts.append(f"--- {title}\n{text}")
    return "\n".join(parts)


if __name__ == "__main__":
    for entry in json.loads(Path(sys.argv[1]).read_text()):
        print(_line(entry))
