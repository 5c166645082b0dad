"""What others wrote is cut where a person would."""

import pytest

from elasticjob.text import cut, plain

SENTENCES = "The file is not there. Its name is wrong; or the volume is. See the log"


@pytest.mark.parametrize(
    ("length", "kept"),
    [
        (len(SENTENCES), SENTENCES),
        (len(SENTENCES) - 1, "The file is not there. Its name is wrong; or the volume is. …"),
        (58, "The file is not there. Its name is wrong; …"),
        (45, "The file is not there. Its name is wrong; …"),
        (21, "The file is not…"),
        (5, "The…"),
    ],
)
def test_a_text_ends_with_a_sentence_or_a_word_where_it_goes_on(length: int, kept: str) -> None:
    assert cut(SENTENCES, length) == kept
    assert len(kept) <= length


@pytest.mark.parametrize("text", ["x" * 400, "a b " * 100, "1.5 " * 100, ". " * 200])
def test_no_text_is_longer_than_it_may_be(text: str) -> None:
    for length in (10, 299, 300):
        kept = plain(text, length)
        assert length / 2 <= len(kept) <= length
        assert kept.endswith("…")
