# SPDX-License-Identifier: Apache-2.0
"""Sidecars of a round whose processes stand still or are cut off, in virtual time: who suspects whom, and who acks."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from elasticjob.heartbeats import ack_seconds, default_worker_lost, suspicion_seconds
from support.wire_scene import Pod, Scene

Play = Callable[[Scene], Coroutine[Any, Any, None]]
SUSPICION = suspicion_seconds(4, default_worker_lost(4))
PROOF = ack_seconds(default_worker_lost(4))
SOON = 1.0  # a look, a sign, and a write


def played(play: Play) -> Callable[[], None]:
    def test() -> None:
        Scene().run(play)

    test.__doc__ = play.__doc__
    return test


async def in_round(scene: Scene, workers: int = 4) -> list[Pod]:
    """Sidecars whose links all stand."""
    pods = [Pod(scene, index) for index in range(workers)]
    for pod in pods:
        pod.start_sidecar()
    await scene.until(lambda: all(pod.ready for pod in pods), "the sidecars")
    ask(scene, pods, 0)
    await scene.until(lambda: links_of(pods[0]) == workers - 1, "the links")
    await asyncio.sleep(10)
    return pods


def ask(scene: Scene, pods: list[Pod], number: int, *asked: Pod) -> None:
    names = " ".join(name(pod) for pod in asked)
    scene.tell("Formed", 1, *pods, ping={"number": number, "members": names})


def links_of(pod: Pod) -> float:
    assert pod.program.sidecar is not None
    value: float = pod.program.sidecar.metrics.links._value.get()
    return value


def name(pod: Pod) -> str:
    return f"{pod.member.index}/{pod.member.id}"


def suspects(pod: Pod) -> str:
    found: str = pod.record.get("status", {}).get("suspects", "")
    return found


def answer(pod: Pod) -> int:
    found: int = pod.record.get("status", {}).get("ack", 0)
    return found


def cut_lines(pod: Pod) -> None:
    """Its way to other pods, not that to the API server."""
    assert pod.program.process is not None
    pod.scene.internet._programs[pod.program.process].cut = lambda _: True


@played
async def test_nothing_happens_and_nothing_is_said(scene: Scene) -> None:
    pods = await in_round(scene)
    before = [pod.record["metadata"]["resourceVersion"] for pod in pods]
    await asyncio.sleep(60)
    assert [pod.record["metadata"]["resourceVersion"] for pod in pods] == before
    assert links_of(pods[0]) == 3


@pytest.mark.parametrize("how", ["stands still", "is cut off"])
def test_a_member_that_is_not_heard_is_suspected_until_it_is(how: str) -> None:
    async def play(scene: Scene) -> None:
        pods = await in_round(scene)
        silent = pods[2]
        stop, go_on = (
            (silent.program.process.freeze, silent.program.process.thaw)  # type: ignore[union-attr]
            if how == "stands still"
            else (silent.network.partition, silent.network.heal)
        )
        stop()
        await asyncio.sleep(SUSPICION - SOON)
        assert suspects(pods[0]) == ""
        await scene.until(lambda: suspects(pods[0]) == name(silent), "rank 0's suspicion", 2 * SOON)
        await asyncio.sleep(5)
        assert [suspects(pod) for pod in pods if pod not in (pods[0], silent)] == ["", ""]
        go_on()
        await scene.until(lambda: suspects(pods[0]) == "", "the suspicion's end", 20)

    Scene().run(play)


@played
async def test_who_stood_still_for_three_seconds_suspicion_nobody(scene: Scene) -> None:
    pods = await in_round(scene)
    before = pods[0].record["metadata"]["resourceVersion"]
    assert pods[0].program.process is not None
    for _ in range(5):
        pods[0].program.process.freeze()
        await asyncio.sleep(3)
        pods[0].program.process.thaw()
        await asyncio.sleep(5)
    assert pods[0].record["metadata"]["resourceVersion"] == before
    assert [suspects(pod) for pod in pods] == [""] * 4, "and is suspected no more"


@played
async def test_rank_0_that_is_lost_is_suspected_by_a_few(scene: Scene) -> None:
    pods = await in_round(scene, 8)
    pods[0].network.partition()
    await scene.until(
        lambda: all(suspects(pod) == name(pods[0]) for pod in pods[1:4]), "the first suspects", SUSPICION + SOON
    )
    ask(scene, pods, 1, pods[0], pods[1], pods[2])
    await asyncio.sleep(60)
    assert [suspects(pod) for pod in pods[4:]] == [""] * 4
    assert [answer(pod) for pod in pods] == [0, 1, 1, 0, 0, 0, 0, 0]


@played
async def test_when_the_first_ranks_are_lost_with_it_the_others_say_so(scene: Scene) -> None:
    pods = await in_round(scene, 6)
    for pod in pods[:4]:
        pod.network.partition()
    await scene.until(
        lambda: suspects(pods[4]) == suspects(pods[5]) == name(pods[0]), "the suspects", 2 * SUSPICION + SOON
    )


@played
async def test_a_broken_line_costs_no_answer(scene: Scene) -> None:
    pods = await in_round(scene)
    cut_lines(pods[1])
    await scene.until(lambda: suspects(pods[0]) == name(pods[1]), "rank 0's suspicion", SUSPICION + SOON)
    ask(scene, pods, 1, pods[0], pods[1])
    await scene.until(lambda: answer(pods[0]) == answer(pods[1]) == 1, "the answers", SOON)


@played
async def test_who_loses_line_and_watch_at_once_answers_in_time(scene: Scene) -> None:
    """As when a node's table of connections is emptied: those that stood are dead, and new ones are not."""
    pods = await in_round(scene)
    lost = pods[1]
    cut_lines(lost)
    for stream in list(lost.network._streams):
        stream.silence()
    await scene.until(lambda: suspects(pods[0]) == name(lost), "rank 0's suspicion", SUSPICION + SOON)
    ask(scene, pods, 1, pods[0], lost)
    await scene.until(lambda: answer(lost) == 1, "the answer", PROOF)


@pytest.mark.parametrize("lost", [0, 2])
def test_who_is_lost_with_what_ended_the_round_is_suspected_while_the_next_forms(lost: int) -> None:
    """Training processes notice at once that a node is gone, and end the round before the silence is one."""

    async def play(scene: Scene) -> None:
        pods = await in_round(scene)
        pods[lost].network.partition()
        scene.tell("Forming", 2, *pods, ping={})
        others = [pod for pod in pods if pod is not pods[lost]]
        first = others if lost == 0 else others[:1]
        await scene.until(
            lambda: all(suspects(pod) == name(pods[lost]) for pod in first), "the suspicion", SUSPICION + SOON
        )
        await asyncio.sleep(60)
        assert [suspects(pod) for pod in others[len(first) :]] == [""] * (3 - len(first))

    Scene().run(play)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_round_that_ends_before_its_lines_stand_makes_no_suspicion(seconds: float) -> None:
    async def play(scene: Scene) -> None:
        pods = await in_round(scene)
        scene.tell("Forming", 2, *pods, ping={})
        await asyncio.sleep(0.5)
        scene.tell("Formed", 2, *pods, ping={})
        await asyncio.sleep(seconds)
        scene.tell("Forming", 3, *pods, ping={})
        await asyncio.sleep(60)
        assert [suspects(pod) for pod in pods] == [""] * 4

    Scene().run(play)


@pytest.mark.parametrize("left", [slice(0, 1), slice(1, 3)], ids=["who trains alone", "who became a spare"])
def test_a_suspicion_is_taken_back_by_who_has_nobody_to_hear_in_the_next_round(left: slice) -> None:
    async def play(scene: Scene) -> None:
        pods = await in_round(scene)
        pods[3].network.partition()
        await scene.until(lambda: suspects(pods[0]) == name(pods[3]), "rank 0's suspicion", SUSPICION + SOON)
        scene.tell("Forming", 2, *pods[:3], ping={})
        await asyncio.sleep(1)
        assert suspects(pods[0]) == name(pods[3]), "which may be what the round waits for"
        scene.tell("Formed", 2, *pods[left], ping={})
        await scene.until(lambda: suspects(pods[0]) == "", "the suspicion's end", SOON)

    Scene().run(play)


@played
async def test_a_suspicion_of_an_earlier_round_is_taken_back_in_the_next(scene: Scene) -> None:
    pods = await in_round(scene)
    pods[3].network.partition()
    await scene.until(lambda: suspects(pods[0]) == name(pods[3]), "rank 0's suspicion", SUSPICION + SOON)
    scene.tell("Forming", 2, *pods[:3], ping={})
    await asyncio.sleep(1)
    scene.tell("Formed", 2, *pods[:3], ping={})
    await scene.until(lambda: suspects(pods[0]) == "", "the suspicion's end", SOON)
    await scene.until(lambda: links_of(pods[0]) == 2, "the links")
