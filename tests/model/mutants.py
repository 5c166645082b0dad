# SPDX-License-Identifier: Apache-2.0
"""Shows that the checks can fail: each mutation is one seeded mistake, and something has to catch it.

`make mutants`, or `python -m model.mutants [--all] [word ...]`: only mutations in whose sentence each word occurs. A
mutation is made in a copy of the sources, and there the unit tests of the rendezvous, a quick exploration of each
model and some lives of the simulation run, that one first which is known to catch it; the first catch ends it. `--all`
lets all run, and tells of each. Before a check is used, it has to pass without any mistake. The run ends with exit code
1 if a mutation survives or cannot be made, or if a check fails without one.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import NamedTuple

from model.mutant_checks import CHECKS, NAMES, command
from model.mutation import ROOT, CannotBeMade, Mutation, file_of, mutated, place_of, read, tree_of, unknown_names

TABLES = sorted((Path(__file__).parent / "mutations").glob("*.txt"))
MUTATIONS = tuple(mutation for table in TABLES for mutation in read(table.read_text()))
COPIED = (
    "core",
    "operator",
    "sidecar",
    "tests/support",
    "tests/unit",
    "tests/model",
    "tests/oracle",
    "tests/simulation",
    "trainer",
    "docs",
    "pyproject.toml",
)
PROCESSES = 2
LONGEST_SECONDS = 300  # a mutant may run in circles
LONGEST_WITHOUT_SECONDS = 3600  # without a mistake a check ends, on a busy machine late


class CheckFails(Exception):
    """A check finds a mistake where none was made, so that it would catch every mutant."""


class Verdict(NamedTuple):
    mutation: Mutation
    caught: dict[str, str]
    seconds: float


class Baseline:
    """Whether checks pass on a copy of the sources without a mistake. Each is run once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = Lock()
        self._answers: dict[tuple[str, ...], Future[str]] = {}

    def require(self, check: str, arguments: tuple[str, ...]) -> None:
        with self._lock:
            known = arguments in self._answers
            answer = self._answers.setdefault(arguments, Future())
        if not known:
            answer.set_result(_run(self._root, arguments, LONGEST_WITHOUT_SECONDS))
        if said := answer.result(timeout=2 * LONGEST_WITHOUT_SECONDS):
            raise CheckFails(
                f"the check {check!r} fails without any mistake, so it shows nothing; mend it first: {said}"
            )


def tried(mutation: Mutation, everything: bool, baseline: Baseline) -> Verdict:
    """What catches the mutation: by the name of the check, what it said."""
    began, caught = time.perf_counter(), {}
    with TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        _copy(root)
        (root / file_of(mutation.address)).write_text(mutated(mutation))
        for name in (mutation.by, *(name for name in CHECKS if name != mutation.by)):
            arguments = command(name, mutation.module)
            baseline.require(name, arguments)
            if said := _run(root, arguments):
                caught[name] = said
                if not everything:
                    break
    return Verdict(mutation, caught, time.perf_counter() - began)


def _copy(root: Path) -> None:
    for name in COPIED:
        source, target = ROOT / name, root / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def _run(root: Path, arguments: tuple[str, ...], seconds: float = LONGEST_SECONDS) -> str:
    """What a check said of a copy of the sources, empty if it found nothing."""
    path = os.pathsep.join(str(root / name) for name in ("core", "operator", "sidecar", "trainer", "tests"))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it does not end within {seconds:g} s"
    return "" if done.returncode == 0 else _essence(done.stdout + done.stderr)


def _essence(output: str) -> str:
    """The one line of a failed check that says what it is about."""
    patterns = (
        r"^seed \d+ .*broke .*\n  (.*)",
        r"^FAILED \S+/(\S+::\S+)",
        r"^.*?: after [\d,]+ states: (.*)",
        r"^E? *(\w+(?:Error|Move|Refused)\b.*)",
    )
    for pattern in patterns:
        if found := re.search(pattern, output, re.MULTILINE):
            return found[1]
    return output.strip().splitlines()[-1] if output.strip() else "it fails without a word"


def problems() -> Iterator[str]:
    """Of mutations that cannot be made, or would show nothing."""
    for mutation in MUTATIONS:
        try:
            place_of(mutation, tree_of(mutation.address))
        except CannotBeMade as problem:
            yield f"{problem} ({mutation.mistake})"
            continue
        if names := unknown_names(mutation):
            yield f"{mutation.module} has no {', '.join(sorted(names))}, as in {mutation.new!r} ({mutation.mistake})"
        if mutation.by not in NAMES:
            yield f"there is no check {mutation.by!r} ({mutation.mistake})"


def main(arguments: list[str]) -> int:
    words = [word for word in arguments if not word.startswith("--")]
    chosen = [mutation for mutation in MUTATIONS if all(word in mutation.mistake for word in words)]
    if found := list(problems()):
        print("\n".join(found))
        return 1
    with TemporaryDirectory(prefix="baseline-") as folder, ThreadPoolExecutor(PROCESSES) as pool:
        _copy(Path(folder))
        try:
            return _try_all(chosen, "--all" in arguments, Baseline(Path(folder)), pool)
        except CheckFails as problem:
            print(problem)
            return 1


def _try_all(chosen: list[Mutation], everything: bool, baseline: Baseline, pool: ThreadPoolExecutor) -> int:
    began, survivors = time.perf_counter(), []
    first = {(mutation.by, command(mutation.by, mutation.module)) for mutation in chosen}
    for _ in pool.map(lambda check: baseline.require(*check), sorted(first)):
        pass  # the first that fails is raised
    for verdict in pool.map(lambda mutation: tried(mutation, everything, baseline), chosen):
        said = "; ".join(f"{name}: {what}" for name, what in verdict.caught.items()) or "SURVIVES"
        print(
            f"{verdict.mutation.mistake}\n    {verdict.mutation.address}, {verdict.seconds:.0f} s: {said}", flush=True
        )
        if not verdict.caught:
            survivors.append(verdict.mutation.mistake)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants caught in {time.perf_counter() - began:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
