# SPDX-License-Identifier: Apache-2.0
"""The functions of docs/scripts.md, as they stand there, with real torch."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs/scripts.md"


@pytest.fixture(scope="module")
def functions() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        exec(block, found)
    return found


@pytest.mark.parametrize("sizes", [[4], [2, 3, 1], [3, 3], [1, 4, 2]])
def test_an_epoch_is_used_up_once_whatever_the_group(functions: dict[str, Any], sizes: list[int]) -> None:
    size, batch, used = 103, 5, []
    for number, world_size in enumerate(sizes, 1):
        ranks = [list(functions["RestOfEpoch"](size, 7, len(used), rank, world_size)) for rank in range(world_size)]
        assert len({len(mine) for mine in ranks}) == 1
        taken = len(ranks[0]) if number == len(sizes) else batch
        used += [one for step in range(taken) for one in (mine[step] for mine in ranks)]
    assert len(set(used)) == len(used)
    assert size - len(used) < sizes[-1]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 8])
def test_the_global_batch_stays(functions: dict[str, Any], world_size: int) -> None:
    batch, steps = functions["accumulation"](48, 8, world_size)
    assert batch <= 8
    assert batch * steps * world_size == 48


def test_a_batch_that_cannot_be_divided_is_refused(functions: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a batch of 48 is not divisible by 5 processes"):
        functions["accumulation"](48, 8, 5)


def test_the_rate_depends_on_batch_and_samples_alone(functions: dict[str, Any]) -> None:
    rate = functions["learning_rate"]
    assert rate(0.1, 256, 512, 10_000, 1_000) == pytest.approx(0.2)
    assert rate(0.1, 256, 1024, 10_000, 1_000, power=0.5) == pytest.approx(0.2)
    assert rate(0.1, 256, 256, 244, 1_000) == pytest.approx(0.05)
