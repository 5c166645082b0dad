# SPDX-License-Identifier: Apache-2.0
"""`make check`: ruff, mypy and the unit tests of what changed, within a minute.

    python -m hack.check [--since COMMIT] [--seconds 60]

ruff and mypy run beside the tests. Tests run, the nearest to the change first, as long as there is time; the last line
says how many there was none for. mypy is never cut off: without its cache it may take longer than that.
"""

import argparse
import sys
import time
from pathlib import Path

from grimp.exceptions import SourceSyntaxError
from hack.check.changes import NoSuchCommit, Tree, tree
from hack.check.choice import Change, Choice, choose
from hack.check.functions import changed
from hack.check.place import BUILD, RECORD, ROOT
from hack.check.record import Record, load
from hack.check.running import Outcome, Side, run
from hack.check.uses import ROOTS, packages_of, uses_of

ENDING = 6.0  # seconds for pytest to end and for what is printed


def main() -> int:
    began = time.time()
    parser = argparse.ArgumentParser(prog="make check")
    parser.add_argument("--since", default="", metavar="COMMIT")
    parser.add_argument("--seconds", type=float, default=60.0, help="0: as long as it takes")
    options = parser.parse_args()
    try:
        now = tree(ROOT, options.since)
    except NoSuchCommit as error:
        print(f"check: {error}", file=sys.stderr)
        return 2
    BUILD.mkdir(parents=True, exist_ok=True)
    with Side("ruff") as ruff, Side("mypy") as mypy:
        record = load(RECORD)
        print(f"check: {len(now.changed)} changed files since {now.commit[:10]}", flush=True)
        try:
            choice = choice_of(now, record)
            tests = run(choice, record, began + options.seconds - ENDING if options.seconds else float("inf"))
        except (SyntaxError, SourceSyntaxError) as error:
            print(f"check: no test was run: {error}")
            tests = Outcome(passed=False)
        failed = [side.name for side in (ruff, mypy) if not side.passed()]
    if not tests.passed:
        failed.append("tests")
    result = f"FAILED ({', '.join(failed)})" if failed else "passed"
    print(f"check: {result} in {time.time() - began:.0f} s; {counts(tests, bool(record.tests))}")
    return 1 if failed else 0


def counts(tests: Outcome, is_recorded: bool) -> str:
    """What ran, what did not, and how to run it."""
    left_out = tests.chosen - tests.ran
    text = f"{tests.ran:,} of {tests.chosen:,} unit tests that the change may concern ran"
    if left_out:
        text += f", {left_out:,} farther ones were left out (make check SECONDS=0 runs them; make unit runs all)"
    if not is_recorded:
        text += "; chosen by imports alone, make coverage records what each test runs"
    return text


def choice_of(now: Tree, record: Record) -> Choice:
    changes = [one for path in sorted(now.changed) if (one := change(path, now))]
    deleted = now.before.keys() - now.now.keys()
    sys.path += [str(ROOT / root) for root in ROOTS]
    packages = packages_of(now.now, str(BUILD / "grimp"), deleted)
    uses = uses_of({**dict.fromkeys(deleted, ""), **now.now}, now.others, packages)
    return choose(changes, uses, [path for path in sorted(now.now) if is_test(path)], record, now.now, now.before)


def change(path: str, now: Tree) -> Change | None:
    """None: the file says the same in other words."""
    if path not in now.before or path not in now.now:
        return Change(path)
    functions = changed(now.before[path], now.now[path])
    return Change(path, frozenset(functions)) if functions or is_test(path) else None


def is_test(path: str) -> bool:
    return path.startswith("tests/unit/") and Path(path).name.startswith("test_")


if __name__ == "__main__":
    sys.exit(main())
