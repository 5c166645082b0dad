# SPDX-License-Identifier: Apache-2.0
"""How the members of a round are written into a status."""

import json
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from elasticjob.api import ElasticJobStatus, RendezvousStatus
from elasticjob.fields import MAX_INDEX
from elasticjob.members import Member, Members, replacement_runs
from elasticjob.schema import PACKED_LENGTH

FEW = (Member(10, "ab"), Member(2, "0" * 32))
SOME = Members(FEW)


def test_they_are_words_in_the_given_order() -> None:
    assert str(SOME) == "10/ab 2/" + "0" * 32
    assert Members.read(str(SOME)) == SOME
    assert (str(Members()), Members.read("")) == ("", Members())


def test_those_that_follow_each_other_with_one_id_are_one_word() -> None:
    runs = [(0, "a"), (1, "a"), (2, "b"), (3, "a"), (4, "a"), (6, "a"), (5, "a")]
    some = Members(Member(*one) for one in runs)
    assert str(some) == "0-1/a 2/b 3-4/a 6/a 5/a"
    assert Members.read(str(some)) == some
    assert [(one.index, one.id) for one in Members.read(str(some))] == runs


@given(st.lists(st.builds(Member, st.integers(0, 9), st.sampled_from("ab")), max_size=12))
def test_they_are_a_sequence(given: list[Member]) -> None:
    some = Members(given)
    assert Members.read(str(some)) == some
    assert (len(some), list(some)) == (len(given), given)
    assert [some[position] for position in range(-len(given), len(given))] == given * 2
    assert list(some[1:]) == given[1:]
    for position in (len(given), -len(given) - 1):
        with pytest.raises(IndexError):
            some[position]
    for one in (Member(index, id) for index in range(10) for id in "abc"):
        assert some.position_of(one) == (given.index(one) if one in given else None)
        assert (one in some) is (one in given)


@pytest.mark.parametrize(
    "text",
    [
        *("1", "1/", "/a", "1/a ", "1/a  2/b", "x/a", "1/a/b", " 1/a", "1/a\n2/b", ["1/a"], None, 1),
        *("1-/a", "-1/a", "1-1/a", "2-1/a", "1-2", "0-99999999/a"),
        *("order:", "order:AAE 1*a", "order:AAE= 2*a", "order:AAE= 1*", "order:AAE= 0*a 1*a", "order:AAE= 1*a 1/b"),
        *("order:AAE=  1*a", "order:AAE=\n1*a", "order:A-E= 1*a", "order:AAEAAg== 1*a", "order:AAE= 999999999*a"),
        *("order:AAE=", "1*a", "1*a order:AAE=", "order:é 1*a"),
    ],
)
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(ValidationError, match="written as index/id"):
        RendezvousStatus.parse({"participants": text})


def anywhere(size: int, highest: int, seed: int) -> list[int]:
    """So many indices, as a layout by the nodes' labels may order them."""
    return Random(seed).sample(range(highest + 1), size)


@settings(max_examples=20)
@given(
    size=st.integers(1, 4096),
    highest=st.sampled_from((4095, MAX_INDEX)),
    ids=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
@example(size=4096, highest=4095, ids=1, seed=0)
@example(size=4096, highest=MAX_INDEX, ids=1, seed=0)
def test_in_any_order_a_status_holds_them_in_three_bytes_each(size: int, highest: int, ids: int, seed: int) -> None:
    """Beside that a word for each run of workers, by index, that were made at once."""
    given = [Member(index, f"9f3c01d{index * ids // (highest + 1)}.0") for index in anywhere(size, highest, seed)]
    status = RendezvousStatus(participants=Members(given))
    assert list(RendezvousStatus.parse(status.dump()).participants) == given
    written = len(json.dumps(status.dump()))
    assert written - len(json.dumps(RendezvousStatus().dump())) <= 3 * size + 600


def test_where_no_two_were_made_at_once_the_crd_takes_them_all() -> None:
    given = [Member(index, f"{index:032}") for index in anywhere(4096, MAX_INDEX, 0)]
    some = Members(given)
    assert list(Members.read(str(some))) == given
    assert len(str(some)) <= PACKED_LENGTH


def test_an_index_may_have_two_ids_in_any_order() -> None:
    indices = anywhere(100, 999, 0)
    given = [Member(1000 + index, id) for id in "ab" for index in indices]
    assert str(Members(given)).startswith("order:")
    assert list(Members.read(str(Members(given)))) == given


def test_replacements_are_words_as_well() -> None:
    status = ElasticJobStatus(replacements={10: 1, 2: 3, 3: 3})
    assert status.dump()["replacements"] == "2-3/3 10/1"
    assert ElasticJobStatus.parse(status.dump()) == status
    with pytest.raises(ValidationError, match="written as index/number"):
        ElasticJobStatus.parse({"replacements": "1/a"})


def test_one_is_looked_up_by_its_index() -> None:
    numbers = replacement_runs("2-3/3 10/1")
    assert [numbers.id_of(index) for index in (1, 2, 3, 4, 10)] == [None, "3", "3", None, "1"]


def test_a_status_holds_them_so() -> None:
    status = RendezvousStatus(participants=SOME)
    assert status.dump()["participants"] == str(SOME)
    assert RendezvousStatus.parse(status.dump()) == status
