# SPDX-License-Identifier: Apache-2.0
"""Which tests are worth running after a change, the nearest first.

A test file is a candidate if it uses a changed file. Of its tests, those are left out of which the record knows that
they run none of the changed functions. Where the record knows nothing (a test that is new, a function that is new, code
that runs at import, a file that is not Python), the imports alone decide.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hack.check.functions import AT_IMPORT
from hack.check.record import Function, Ran, Record
from hack.check.uses import Uses, distances

FAR = 99  # of a test that runs what changed, though no import leads there


@dataclass(frozen=True)
class Change:
    """A file that changed, and which of its functions, among them perhaps what runs at import."""

    path: str
    functions: frozenset[str] = frozenset({AT_IMPORT})


@dataclass
class Choice:
    """Distances: of test files, which hold for all of their tests but those that have their own (None: left out)."""

    files: dict[str, int] = field(default_factory=dict)
    tests: dict[str, int | None] = field(default_factory=dict)


def choose(
    changes: Collection[Change],
    uses: Uses,
    test_files: Collection[str],
    record: Record,
    now: Mapping[str, str],
    before: Mapping[str, str],
) -> Choice:
    """`now` and `before` hold the texts of Python files, the latter of changed ones only."""
    known: dict[str, dict[str, Ran]] = defaultdict(dict)
    for test, ran in record.known_tests(now, before).items():
        known[_file(test)][test] = ran
    some_unknown = {_file(test) for test in record.tests if test not in known[_file(test)]}
    far = {change: distances(uses, change.path) for change in changes}
    choice = Choice()
    for file in test_files:
        nearest = min((found[file] for found in far.values() if file in found), default=None)
        own = {test: _nearest(changes, file, ran, far, record) for test, ran in known[file].items()}
        all_known = file not in some_unknown and record.is_as_then(file, now.get(file))
        if any(distance is not None for distance in own.values()) or (nearest is not None and not all_known):
            choice.files[file] = FAR if nearest is None else nearest
            choice.tests |= own
    return choice


def _file(test: str) -> str:
    return test.partition("::")[0]


def _nearest(
    changes: Collection[Change], file: str, ran: Ran, far: Mapping[Change, Mapping[str, int]], record: Record
) -> int | None:
    """How near to a test that is known the nearest of the changes is that it may notice."""
    found = []
    for change in changes:
        functions = {Function(change.path, name) for name in change.functions}
        if functions & ran.functions:
            found.append(far[change].get(file, FAR))
        elif file in far[change] and not all(record.knows(one) for one in functions):
            found.append(far[change][file])
    return min(found, default=None)
