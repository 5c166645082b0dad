# SPDX-License-Identifier: Apache-2.0
"""A copy of the checkout in which one thing is broken, and what a target of the Makefile says of it.

It knows no check: those are in `guards.cases`.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 600
# those of the `make` that runs the tests
OF_MAKE = {"MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS"}


class Case(NamedTuple):
    """`old` becomes `new` in each of the files. Without `old`, `new` is added to them; without both, they go."""

    target: str
    breaks: str
    files: tuple[str, ...]
    old: str
    new: str
    says: tuple[str, ...]


def git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=SECONDS)
    return ran.stdout.rstrip("\n")


def files(*patterns: str) -> list[str]:
    """Those of the checkout that git knows or would take, as long as they are there."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns).rstrip("\0").split("\0")
    return [name for name in listed if os.path.lexists(ROOT / name)]


class Checkout:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in files():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

    def make(self, target: str, **variables: str) -> tuple[int, str]:
        """The exit code and all that was printed. The copy is no repository: what asks git asks this one's."""
        environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
        environment |= {"COLUMNS": "200", "GIT_DIR": git("rev-parse", "--absolute-git-dir"), "GIT_WORK_TREE": "."}
        done = subprocess.run(
            ["make", *target.split()],
            cwd=self._folder,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        return done.returncode, done.stdout

    @contextmanager
    def broken(self, case: Case) -> Iterator[None]:
        """It is broken meanwhile, and whole again afterwards."""
        try:
            self._edit(case)
            yield
        finally:
            for name in case.files:
                (self._folder / name).unlink(missing_ok=True)
                if (ROOT / name).exists():
                    shutil.copy2(ROOT / name, self._folder / name, follow_symlinks=False)

    def _edit(self, case: Case) -> None:
        for name in case.files:
            path = self._folder / name
            if case.old:
                text = path.read_text()
                assert case.old in text, f"{name} has no '{case.old}', which this case is to break"
                path.write_text(text.replace(case.old, case.new, 1))
            elif case.new:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a") as file:
                    file.write(case.new)
            else:
                path.unlink()


def assert_passes(target: str, checkout: Checkout) -> None:
    code, said = checkout.make(target)
    assert code == 0, said


def assert_found(case: Case, checkout: Checkout) -> None:
    with checkout.broken(case):
        code, said = checkout.make(case.target)
    assert code != 0, f"make {case.target} passes\n{said}"
    for words in case.says:
        assert words in said, said


def each(*cases: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: f"{case.target}: {case.breaks}")
