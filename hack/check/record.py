# SPDX-License-Identifier: Apache-2.0
"""What the unit tests ran when they were last measured: which test runs which function.

`make coverage` writes the record and keeps it beside the other slow things, for all clones. It may be older than the
files, so each function has its digest: a test that ran one which is another today may run anything today, and counts
as unknown. So do tests that start processes, in which nothing is measured, and tests that are new.

Not seen: a test that branches on a constant of a module of which it runs no function, when that constant was changed
before the commit that `make check` compares with.
"""

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hack.check.functions import AT_IMPORT, digests

FORMAT = 1


class Function(NamedTuple):
    path: str
    name: str


class File(NamedTuple):
    """A file as it was: the digest of its text, and of each of its functions."""

    text: str
    functions: Mapping[str, str]

    @classmethod
    def of(cls, text: str) -> "File":
        return cls(digest(text), digests(text))


class Ran(NamedTuple):
    """What one test did. `whole`: all of it was measured, it started no process."""

    seconds: float
    whole: bool
    functions: frozenset[Function]


@dataclass(frozen=True)
class Record:
    """`outside` holds what ran outside of any test, so that nobody knows which tests depend on it."""

    files: Mapping[str, File]
    tests: Mapping[str, Ran]
    outside: frozenset[Function]

    def knows(self, function: Function) -> bool:
        """Whether the tests that run it are known, though there may be none."""
        measured = function.path in self.files and function.name in self.files[function.path].functions
        return measured and function.name != AT_IMPORT and function not in self.outside

    def is_as_then(self, path: str, text: str | None) -> bool:
        return text is not None and path in self.files and self.files[path].text == digest(text)

    def known_tests(self, *states: Mapping[str, str]) -> dict[str, Ran]:
        """Those of which all functions are now as they were then, or were so in another of the states."""
        others = {Function(path, name) for path in self.files for name in self._other(path, *states)}
        files = {one.path for one in others if one.name == AT_IMPORT}
        return {
            test: ran
            for test, ran in self.tests.items()
            if ran.whole and ran.functions.isdisjoint(others) and not any(one.path in files for one in ran.functions)
        }

    def _other(self, path: str, *states: Mapping[str, str]) -> set[str]:
        if any(self.is_as_then(path, state.get(path)) for state in states):
            return set()
        found = [digests(state[path]).items() for state in states if path in state]
        return {one[0] for one in self.files[path].functions.items() if not any(one in items for items in found)}


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


EMPTY = Record({}, {}, frozenset())


def save(record: Record, path: Path) -> None:
    functions = sorted({one for ran in record.tests.values() for one in ran.functions} | record.outside)
    numbers = {one: number for number, one in enumerate(functions)}
    body = {
        "format": FORMAT,
        "files": record.files,
        "functions": functions,
        "outside": sorted(numbers[one] for one in record.outside),
        "tests": {
            test: [round(ran.seconds, 3), ran.whole, sorted(numbers[one] for one in ran.functions)]
            for test, ran in sorted(record.tests.items())
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_bytes(gzip.compress(json.dumps(body, separators=(",", ":")).encode()))
    new.replace(path)


def load(path: Path) -> Record:
    """The record, or an empty one, with which the imports alone choose."""
    if not path.exists():
        return EMPTY
    body = json.loads(gzip.decompress(path.read_bytes()))
    if body["format"] != FORMAT:
        return EMPTY
    functions = [Function(*one) for one in body["functions"]]
    return Record(
        {path: File(*file) for path, file in body["files"].items()},
        {
            test: Ran(seconds, whole, frozenset(functions[number] for number in numbers))
            for test, (seconds, whole, numbers) in body["tests"].items()
        },
        frozenset(functions[number] for number in body["outside"]),
    )
