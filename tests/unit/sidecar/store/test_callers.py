# SPDX-License-Identifier: Apache-2.0
"""When all training processes of a round have connected to its store."""

import pytest

from elasticjob.api import Member
from elasticjob_sidecar.store.tunnel import Callers

ONE, OTHER = Member(0, "a"), Member(1, "b")


@pytest.mark.parametrize(
    ("processes", "came", "told"),
    [
        (1, [ONE, OTHER], 2),
        (2, [ONE, ONE, OTHER, OTHER], 4),
        (0, [ONE, OTHER, ONE, OTHER], 4),  # first the agents, as workers may have different numbers of processes
        (1, [ONE, ONE, ONE], None),  # the other's do not come
        (1, [ONE, OTHER, ONE, OTHER], 2),  # told once, whatever comes later
    ],
)
def test_it_is_told_when_the_last_process_has_come(processes: int, came: list[Member], told: int | None) -> None:
    callers = Callers(processes)
    found = [number for number, member in enumerate(came, 1) if callers.came(1, member, 2)]
    assert found == ([] if told is None else [told])


def test_each_round_is_counted_anew() -> None:
    callers = Callers(1)
    assert not callers.came(1, ONE, 2)
    assert not callers.came(2, OTHER, 2)
    assert callers.came(2, ONE, 2)
