# SPDX-License-Identifier: Apache-2.0
"""What is known of a script's imports, and what other pods are told of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticjob_torch.warm.learned import Learned

ALL = ["first", "second", "third"]
NOTED = "first 1.1\nsecond 1.2\nthird 2.2\n"


@pytest.fixture
def learned() -> Iterator[Learned]:
    made = Learned()
    yield made
    made.close()


def train(learned: Learned, noted: str, early: list[str] | None = None) -> None:
    """A process that notes so much, after those imports if it was prestarted."""
    file = Path(learned.new_file(0))
    if early is not None:
        learned.begins_with(0, early)
    file.write_text(noted)
    learned.read()


def prestart(learned: Learned, done: int | None = None, differs: str | None = None) -> list[str]:
    """A prestarted process that is ready."""
    imports = learned.imports(0)
    return learned.compare(imports, learned.states(0), len(imports) if done is None else done, differs)


def test_of_an_ordinary_start_others_are_told_what_began_in_the_first_state(learned: Learned) -> None:
    train(learned, NOTED)
    assert learned.imports(0) == ALL
    assert learned.shared() == ["first"]


def test_all_is_told_as_soon_as_a_prestarted_process_was_in_the_same_states(learned: Learned) -> None:
    train(learned, NOTED)
    assert prestart(learned) == ALL
    assert learned.shared() == ALL


@pytest.mark.parametrize("again", ["second 2.2\n", "third 9.9\nsecond 9.9\n"])
def test_what_a_warm_process_notes_of_its_early_imports_counts_for_nothing(learned: Learned, again: str) -> None:
    train(learned, NOTED)
    prestart(learned)
    train(learned, again, early=ALL)
    assert learned.states(0)["second"] == "1.2"
    assert learned.shared() == learned.imports(0) == ALL


def test_what_it_imports_besides_is_told_when_a_prestarted_process_has_been_in_its_state(learned: Learned) -> None:
    train(learned, NOTED)
    prestart(learned)
    train(learned, "fourth 2.3\n", early=ALL)
    assert learned.shared() == ALL
    prestart(learned)
    assert learned.shared() == [*ALL, "fourth"]


def test_an_ordinary_start_in_other_states_takes_nothing_back_until_a_prestarted_process_differs(
    learned: Learned,
) -> None:
    train(learned, NOTED)
    prestart(learned)
    train(learned, "first 1.1\nsecond 7.7\nthird 2.2\n")
    assert learned.shared() == ALL
    assert prestart(learned, done=1, differs="logging") == ["first"]
    assert learned.shared() == learned.imports(0) == ["first"]


def test_what_was_given_is_told_on_at_once_even_if_the_script_did_some_of_it_itself(learned: Learned) -> None:
    """Its orders came while it imported: another pod has proven all of it."""
    learned.give(ALL)
    train(learned, "third 2.2\n", early=ALL)
    assert learned.shared() == ALL


def test_nothing_is_told_of_what_was_only_given(learned: Learned) -> None:
    learned.give(ALL)
    assert learned.imports(0) == ALL
    assert learned.shared() == []


def test_that_there_is_nothing_to_learn_shows_at_the_end_of_the_notes(learned: Learned) -> None:
    train(learned, "")
    assert not learned.is_without(0)  # it may be slow to start
    train(learned, "- os.putenv\n")
    assert learned.is_without(0)
    learned.give(ALL)
    assert not learned.is_without(0)


def test_what_cannot_be_early_is_neither_imported_nor_told(learned: Learned) -> None:
    train(learned, "first 1.1\nsecond 1.1\nthird 1.1\n")
    assert not learned.leave_out("second", "", "it hangs")
    assert learned.imports(0) == learned.shared() == ["first", "third"]
    assert [learned.leave_out(f"more{number}", "", "they hang") for number in range(9)][-1]
