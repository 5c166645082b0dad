# SPDX-License-Identifier: Apache-2.0
"""The questions to sidecars: how many, how often, and that no step waits for an answer. In virtual time."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from elasticjob_operator.actions.sidecar_questions import SidecarQuestions
from elasticjob_operator.job.outcome import Done, LookAgain
from elasticjob_operator.job.sidecars import MOST, SidecarQuestion

pytestmark = pytest.mark.looptime
NOW = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)


class Sidecars:
    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked = seconds, list[str]()

    async def ask(self, address: str, _: int) -> str | None:
        self.asked.append(address)
        await asyncio.sleep(self.seconds)
        return f"trouble at {address}"


def asked(index: int, seconds: float = 0.0) -> SidecarQuestion:
    return SidecarQuestion((index, 0), f"10.0.0.{index}", NOW + timedelta(seconds=seconds), ready=False)


async def test_a_step_does_not_wait_for_the_answer() -> None:
    sidecars = Sidecars(seconds=2.0)
    questions = SidecarQuestions(sidecars.ask)
    assert questions.ask([asked(1)], NOW) == LookAgain(1.0)
    assert questions.answers == {}
    await asyncio.sleep(2.1)
    assert questions.answers == {(1, 0): "trouble at 10.0.0.1"}


async def test_one_is_asked_when_it_is_due_and_again_after_ten_seconds() -> None:
    sidecars = Sidecars(seconds=0.1)
    questions = SidecarQuestions(sidecars.ask)
    assert questions.ask([asked(1, seconds=7)], NOW) == LookAgain(7.0)
    assert sidecars.asked == []
    for again in range(1, 3):
        questions.ask([asked(1, seconds=7)], NOW + timedelta(seconds=8))
        await asyncio.sleep(0.2)
        assert len(sidecars.asked) == again
        assert questions.ask([asked(1)], NOW) == LookAgain(pytest.approx(9.8))
        await asyncio.sleep(10)


async def test_few_are_asked_at_once_and_all_in_the_end() -> None:
    sidecars = Sidecars(seconds=1.0)
    questions, many = SidecarQuestions(sidecars.ask), [asked(index) for index in range(2 * MOST)]
    questions.ask(many, NOW)
    await asyncio.sleep(0.5)
    questions.ask(many, NOW)
    assert len(sidecars.asked) == MOST
    await asyncio.sleep(1)
    questions.ask(many, NOW)
    await asyncio.sleep(1.1)
    assert len(set(sidecars.asked)) == 2 * MOST


async def test_who_is_not_to_be_asked_any_more_is_forgotten() -> None:
    questions = SidecarQuestions(Sidecars(seconds=0.0).ask)
    questions.ask([asked(1), asked(2)], NOW)
    await asyncio.sleep(0.1)
    questions.ask([asked(2)], NOW)
    assert questions.answers == {(2, 0): "trouble at 10.0.0.2"}
    assert questions.ask([], NOW) == Done()
