# SPDX-License-Identifier: Apache-2.0
"""What `make soak` says of processes that live through changes: whether they hold more from round to round."""

from e2e.resources import Held, growth, leaks, read

SIZES = [1, 2, 3, 2] * 5


def held(*, memory: float = 0.0, threads: float = 0.0, descriptors: float = 0.0) -> list[Held]:
    """Of 20 rounds, in each of which so much is added; a peer takes three descriptors and a thread."""
    return [
        Held(
            size, 7, 500 + memory * number, int(20 + size + threads * number), int(30 + 3 * size + descriptors * number)
        )
        for number, size in enumerate(SIZES)
    ]


def test_what_is_printed_is_read() -> None:
    line = "holds: world_size=3 pid=71 rss_mib=512.4 threads=24 descriptors=41"
    assert read(["rank 0", line, "holds: world_size=3 pid=71 rss_mib="]) == [Held(3, 71, 512.4, 24, 41)]


def test_nothing_grows_where_only_the_size_changes() -> None:
    assert list(leaks(held())) == []


def test_each_leak_is_named() -> None:
    assert [text.split(":")[0] for text in leaks(held(memory=12))] == ["memory grows"]
    assert "descriptors grow in groups of 2" in [text.split(":")[0] for text in leaks(held(descriptors=1))]
    assert "threads grow in groups of 2" in [text.split(":")[0] for text in leaks(held(threads=1))]


def test_the_first_quarter_is_no_growth() -> None:
    assert growth([100, 150, 200, 300, 400, 400, 400, 400, 400, 400, 400, 400]) == 1
    assert growth([5.0]) == 1
