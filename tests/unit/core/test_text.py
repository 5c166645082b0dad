# SPDX-License-Identifier: Apache-2.0
"""What others wrote is cut where a person would."""

import pytest

from elasticjob.text import bare, cut, escaped, plain, printable

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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mValueError\x1b[0m: no", "ValueError: no"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://there\x1b\\link", "link"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x1bcreset", "reset"),
        ("cut off \x1b[", "cut off"),
        ("\x9b2Jone byte", "2Jone byte"),
        ("two\n2026-01-01 INFO lines\r\x00", "two 2026-01-01 INFO lines"),
        ("left \u202eright", "left right"),
        ("a word", "a word"),
    ],
)
def test_nothing_that_a_terminal_obeys_is_left(text: str, shown: str) -> None:
    assert printable(text) == plain(text, 100) == shown
    assert bare(text).isprintable()


def test_what_is_escaped_can_be_read_and_is_one_line() -> None:
    assert escaped("a\n\x1b[2J\u202eb") == r"a\n\x1b[2J\u202eb"
