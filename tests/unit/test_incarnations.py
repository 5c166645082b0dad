"""How the members of a round are written into a status."""

import pytest
from pydantic import ValidationError

from elasticjob.api import ElasticJobStatus, RendezvousStatus
from elasticjob.incarnations import Incarnation, Incarnations

FEW = (Incarnation(10, "ab"), Incarnation(2, "0" * 32))
SOME = Incarnations(FEW)


def test_they_are_words_in_the_given_order() -> None:
    assert str(SOME) == "10/ab 2/" + "0" * 32
    assert Incarnations.read(str(SOME)) == SOME
    assert (str(Incarnations()), Incarnations.read("")) == ("", Incarnations())


def test_they_are_a_sequence() -> None:
    assert (len(SOME), tuple(SOME), SOME[1], SOME[-1:]) == (2, FEW, FEW[1], Incarnations(FEW[1:]))
    assert (FEW[1] in SOME, SOME.place_of(FEW[1])) == (True, 1)
    other = Incarnation(10, "abc")
    assert (other in SOME, SOME.place_of(other)) == (False, None)


@pytest.mark.parametrize(
    "text", ["1", "1/", "/a", "1/a ", "1/a  2/b", "x/a", "1/a/b", " 1/a", "1/a\n2/b", ["1/a"], None, 1]
)
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(ValidationError, match="written as index/id"):
        RendezvousStatus.parse({"participants": text})


def test_replacements_are_words_as_well() -> None:
    status = ElasticJobStatus(replacements={10: 1, 2: 3})
    assert status.dump()["replacements"] == "10/1 2/3"
    assert ElasticJobStatus.parse(status.dump()) == status
    with pytest.raises(ValidationError, match="written as index/number"):
        ElasticJobStatus.parse({"replacements": "1/a"})


def test_a_status_holds_them_so() -> None:
    status = RendezvousStatus(participants=SOME)
    assert status.dump()["participants"] == str(SOME)
    assert RendezvousStatus.parse(status.dump()) == status
