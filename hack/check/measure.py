# SPDX-License-Identifier: Apache-2.0
"""Runs the unit tests under coverage.py: prints which part of the product's lines they run, and keeps the record.

    python -m hack.check.measure [PYTEST'S OPTION...]

Lines that run only in processes that a test starts are not counted.
"""

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coverage import Coverage, CoverageData
from hack.check.functions import spans
from hack.check.place import RECORD, ROOT
from hack.check.record import File, Function, Ran, Record, save
from hack.check.recorder import DATA, TESTS

PARTS = ("core", "operator", "sidecar", "trainer", "cli")


def main(options: list[str]) -> int:
    folder = Path(DATA).parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    passed = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "hack.check.recorder", *(options or ("tests/unit", "-n", "2"))],
        check=False,
    )
    measured = Coverage(data_file=DATA)
    measured.combine()
    show(measured)
    if passed.returncode == 0 and not options:
        record = reduced(
            measured.get_data(), [json.loads(one.read_text()) for one in folder.glob(f"{Path(TESTS).name}.*")]
        )
        save(record, RECORD)
        print(f"coverage: {len(record.tests):,} tests recorded in {RECORD}, {RECORD.stat().st_size / 1024:,.0f} KiB")
    return passed.returncode


def show(measured: Coverage) -> None:
    """Each part's lines, and all files in build/coverage.json."""
    measured.json_report(outfile="build/coverage.json", include=[f"{part}/*" for part in PARTS])
    lines: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, file in json.loads(Path("build/coverage.json").read_text())["files"].items():
        for name in (path.partition("/")[0], "all"):
            lines[name][0] += file["summary"]["covered_lines"]
            lines[name][1] += file["summary"]["num_statements"]
    for name, (covered, all_lines) in lines.items():
        print(f"coverage: {name:10} {covered:6,} of {all_lines:6,} lines, {100 * covered / all_lines:.2f} %")


def reduced(data: CoverageData, notes: Iterable[Mapping[str, Any]]) -> Record:
    """Lines and contexts as functions and tests."""
    seconds: dict[str, float] = {}
    processes: set[str] = set()
    for one in notes:
        seconds |= one["seconds"]
        processes |= {*one["processes"]}
    files: dict[str, File] = {}
    ran: dict[str, set[Function]] = defaultdict(set)
    for full in data.measured_files():
        path = str(Path(full).relative_to(ROOT)) if Path(full).is_absolute() else full
        text = Path(path).read_text()
        files[path] = File.of(text)
        contexts = data.contexts_by_lineno(full)
        for first, last, name in spans(text):
            for context in {one for line in range(first, last + 1) for one in contexts.get(line, ())}:
                ran[context].add(Function(path, name))
    return Record(
        files,
        {
            test: Ran(
                took, not processes & _names(test), frozenset().union(*(ran[one] for one in _names(test) if one in ran))
            )
            for test, took in seconds.items()
        },
        frozenset(ran[""]),
    )


def _names(test: str) -> set[str]:
    """The test, and the file and class whose fixtures it shares."""
    parts = test.split("::")
    return {"::".join(parts[:n]) for n in range(1, len(parts) + 1)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
