# SPDX-License-Identifier: Apache-2.0
"""A sidecar between the plug-in and an API server that fails in one way each: what the trainer is told, and in time."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any, cast

import pytest

from elasticjob.api import JOB_LABEL
from elasticjob_torch import wire
from elasticjob_torch.agent.state_machine import CannotRunHere
from elasticjob_torch.sidecar.errors import NoTrainer
from simulation.plugin import open_connection
from support.wire_scene import Pod, Scene

Play = Callable[[Scene], Coroutine[Any, Any, None]]


def played(play: Play) -> Callable[[], None]:
    def test() -> None:
        Scene().run(play)

    test.__doc__ = play.__doc__
    return test


async def in_round(scene: Scene) -> Pod:
    """One worker, whose agent holds round 1."""
    pod = Pod(scene)
    await pod.start()
    await scene.form(1, pod)
    return pod


# --- the trainer's stream


@played
async def test_a_stream_is_never_silent(scene: Scene) -> None:
    """However often something of the job changes, or if nothing does."""
    pod = await in_round(scene)
    for number in range(30):
        scene.note(str(number))
        await asyncio.sleep(4)
    await asyncio.sleep(100)
    assert (pod.agent.silences, pod.asks("Leave")) == (0, False)


@played
async def test_a_change_is_told_at_once(scene: Scene) -> None:
    pod = await in_round(scene)
    scene.tell("Forming", 2)
    await scene.until(lambda: pod.agent.machine.has_ended(1), "news of the round's end", 1.0)


@played
async def test_a_killed_trainer_is_noticed(scene: Scene) -> None:
    pod = await in_round(scene)
    pod.agent.process.kill()
    await scene.until(lambda: pod.asks("Leave"), "the leave", 2.0)


@played
async def test_the_end_of_a_stream_that_was_replaced_ends_nothing(scene: Scene) -> None:
    """The same trainer connects again before the old connection is known to be gone."""
    pod = await in_round(scene)
    _, writer = await pod.agent.process.start(open_connection("127.0.0.1", 27600))
    writer.write(f"GET {pod.agent.events.target()} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    await scene.until(lambda: not pod.agent.events.connected.is_set(), "the end of the first stream")
    await scene.until(pod.agent.events.connected.is_set, "the third stream")
    writer.close()
    await asyncio.sleep(3)
    assert not pod.asks("Leave")
    pod.agent.process.kill()
    await scene.until(lambda: pod.asks("Leave"), "the leave", 2.0)


@played
async def test_a_second_trainer_is_refused_while_the_first_lives(scene: Scene) -> None:
    """Whatever it asks, the first one trains on."""
    pod = await in_round(scene)
    first, second = pod.agent, pod.start_agent()
    began = scene.loop.time()
    with pytest.raises(CannotRunHere, match="the process 7 of this pod takes part in the job already"):
        await second.do(second.machine.opening())
    assert scene.loop.time() - began >= wire.PREDECESSOR_SECONDS
    with pytest.raises(NoTrainer):
        await second.process.start(second.calls.join(0, wire.JoinCause.STARTED, 1.0))  # type: ignore[arg-type]
    await asyncio.sleep(60)
    assert first.machine.notice_change() == 0
    assert (first.silences, pod.asks("Leave")) == (0, False)


@played
async def test_a_second_trainer_takes_the_place_of_a_first_that_ends(scene: Scene) -> None:
    """A shell starts the next torchrun while the last one's end is not known yet."""
    pod = await in_round(scene)
    first, second = pod.agent, pod.start_agent()
    opening = second.do(second.machine.opening())
    await asyncio.sleep(wire.PREDECESSOR_SECONDS / 2)
    assert not opening.done()
    first.process.kill()
    await opening
    await scene.form(2, pod)
    assert second.machine.notice_change() == 0


# --- what a trainer says


@played
async def test_success_is_told_when_it_is_recorded(scene: Scene) -> None:
    pod = await in_round(scene)
    scene.server.down = True
    finishing = pod.agent.do(pod.agent.machine.finishing(100.0))
    await asyncio.sleep(15)
    assert not finishing.done()
    scene.server.down = False
    assert await finishing
    assert pod.asks("Finish")


@played
async def test_success_that_is_not_recorded_is_not_told(scene: Scene) -> None:
    pod = await in_round(scene)
    scene.server.down = True
    assert not await pod.agent.do(pod.agent.machine.finishing(10.0))


@played
async def test_a_word_that_changes_while_the_last_is_written_is_written_too(scene: Scene) -> None:
    pod = await in_round(scene)
    scene.tell("Forming", 2)
    joining = pod.agent.do(pod.agent.machine.joining())
    scene.weather.slowest = 2.0
    await asyncio.sleep(0.1)
    joining.cancel()
    assert await pod.agent.do(pod.agent.machine.finishing())
    assert pod.asks("Finish")


@played
async def test_a_sidecar_that_restarts_is_told_again(scene: Scene) -> None:
    """And tells its trainer that the round is none of its own."""
    pod = await in_round(scene)
    pod.process.kill()
    await asyncio.sleep(2)
    pod.start_sidecar()
    await scene.until(lambda: pod.agent.machine.has_ended(1), "the end of a round of an earlier sidecar", 5.0)
    joining = pod.agent.do(pod.agent.machine.joining())
    await scene.until(lambda: pod.asks("Join"), "the join")
    assert pod.record["spec"]["request"]["cause"] == "MembershipChanged"
    pod.process.kill()
    await asyncio.sleep(2)
    pod.start_sidecar()
    await scene.until(lambda: pod.ready and pod.record["spec"]["id"] == pod.program.id, "the record")
    await scene.until(lambda: pod.asks("Join"), "the join, again")
    scene.tell("Formed", 2, pod)
    assert (await joining).number == 2


@played
async def test_a_failure_is_told_as_one(scene: Scene) -> None:
    pod = await in_round(scene)
    pod.agent.do(pod.agent.machine.joining(wire.Failure("exit code 42", 42, wire.FailureKind.EXIT_CODE)))
    await scene.until(lambda: pod.record["spec"]["request"].get("detail") == "exit code 42", "the cause")
    told = pod.record["spec"]["request"]
    assert (told["cause"], told["exitCode"], told["failureKind"]) == ("WorkerFailed", 42, "ExitCode")


@played
async def test_a_trainer_that_gives_up_tells_the_exit_code_of_its_script(scene: Scene) -> None:
    pod = await in_round(scene)
    await pod.agent.do(pod.agent.machine.ending(exit_code=42))
    told = pod.record["spec"]["request"]
    assert (told["cause"], told["exitCode"]) == ("TrainerLeft", 42)


@played
async def test_rank_0_that_serves_no_store_leaves(scene: Scene) -> None:
    pod = Pod(scene)
    await pod.start()
    await scene.form(1, pod, serve=False)
    await scene.until(lambda: pod.asks("Leave"), "the leave", 25.0)
    assert pod.record["spec"]["request"]["cause"] == "StoreNotReady"


# --- the API server


@played
async def test_an_answer_that_was_lost(scene: Scene) -> None:
    """The write may have been made: the next one fits what is there."""
    pod = await in_round(scene)
    scene.weather.unanswered = 1.0
    await asyncio.sleep(7)
    scene.weather.unanswered = 0.0
    assert await pod.agent.do(pod.agent.machine.finishing())


@played
async def test_requests_put_off_no_heartbeats(scene: Scene) -> None:
    pod = Pod(scene)
    agent = await pod.start()
    scene.tell("Forming", 1)
    for _ in range(20):
        joining = agent.do(agent.machine.joining())
        await asyncio.sleep(1)
        joining.cancel()
        await agent.process.start(cast("Any", agent.calls.leave("TrainerLeft", 5.0)))
        await asyncio.sleep(1)
    assert pod.record.get("status", {}).get("heartbeat", 0) >= 40 / 10 - 1  # each is put off once at most


@played
async def test_a_record_that_somebody_else_has_written(scene: Scene) -> None:
    pod = await in_round(scene)
    pod.spoil(lambda record: record["metadata"].setdefault("annotations", {}).update(seen="yes"))
    began = scene.loop.time()
    assert await pod.agent.do(pod.agent.machine.finishing())
    assert scene.loop.time() - began < 2


@played
async def test_a_record_that_was_deleted(scene: Scene) -> None:
    pod = await in_round(scene)
    found = scene.server.store.find("elasticworkers", ("ml", pod.name))
    assert found is not None
    scene.server.delete("elasticworkers", found, "people")
    await scene.until(lambda: pod.asks("Join"), "the record")


@pytest.mark.parametrize("what", ["labels", "ownerReferences"])
def test_a_record_that_is_known_as_nobodys(what: str) -> None:
    async def play(scene: Scene) -> None:
        pod = await in_round(scene)
        pod.spoil(lambda record: record["metadata"].pop(what))
        await scene.until(lambda: pod.record["metadata"].get(what), f"the {what}")
        assert pod.record["metadata"]["labels"][JOB_LABEL] == "job"

    Scene().run(play)


@played
async def test_a_history_that_was_forgotten(scene: Scene) -> None:
    pod = await in_round(scene)
    scene.server.down = True
    scene.server.break_watches()
    await asyncio.sleep(1)
    scene.tell("Forming", 2)
    scene.server.store.forget_history()
    scene.server.down = False
    await scene.until(lambda: pod.agent.machine.has_ended(1), "the new list", 5.0)


@played
async def test_a_watch_that_falls_silent(scene: Scene) -> None:
    pod = await in_round(scene)
    scene.weather.silent_watch = 1.0
    scene.note("lost, and all after it")
    scene.weather.silent_watch = 0.0
    scene.tell("Forming", 2)
    await scene.until(lambda: pod.agent.machine.has_ended(1), "the end of the watch", 75.0)


@played
async def test_news_come_in_order(scene: Scene) -> None:
    """A watch goes on from where the last one ended."""
    pod = await in_round(scene)
    for round in range(2, 6):
        scene.tell("Forming", round)
        await asyncio.sleep(1)
        scene.server.break_watches()
        await asyncio.sleep(5)
    rounds = [view.round for view in pod.agent.views]
    assert rounds == sorted(rounds)
    assert rounds[-1] == 5


@played
async def test_a_request_that_is_never_answered(scene: Scene) -> None:
    pod = await in_round(scene)
    pod.network.partition()
    finishing = pod.agent.do(pod.agent.machine.finishing())
    await asyncio.sleep(3)
    pod.network.heal()
    assert await finishing


@played
async def test_a_server_that_was_long_away(scene: Scene) -> None:
    pod = await in_round(scene)
    await asyncio.sleep(10)
    scene.server.down = True
    scene.server.break_watches()
    scene.tell("Forming", 2)
    await asyncio.sleep(120)
    scene.server.down = False
    beats = pod.record["status"]["heartbeat"]
    await scene.until(lambda: pod.agent.machine.has_ended(1), "the watch", 5.0)
    await scene.until(lambda: pod.record["status"]["heartbeat"] > beats, "a heartbeat", 10.0)


# --- the store


@played
async def test_the_store_of_each_round_is_reached_and_no_other(scene: Scene) -> None:
    zero, one = Pod(scene, 0), Pod(scene, 1)
    for pod in (zero, one):
        await pod.start()
    connections = []
    for number in (1, 2, 3):
        await scene.form(number, zero, one)
        machine = one.agent.machine
        await one.agent.do(machine.awaiting_store(one.agent.handed, scene.loop.time() + 20))
        connections.append(await one.agent.process.start(open_connection("127.0.0.1", 27400)))
        await asyncio.sleep(1)
    ended = lambda: [reader.at_eof() for reader, _ in connections]  # noqa: E731
    await scene.until(lambda: ended() == [True, True, False], "the ends of old connections")
    for _, writer in connections:
        writer.close()


@played
async def test_the_next_ports_are_rank_0s_while_a_round_stands(scene: Scene) -> None:
    """Libraries open a store of their own beside the round's, at a port after MASTER_PORT, on rank 0."""
    zero, one = Pod(scene, 0), Pod(scene, 1)

    class SideStore(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            cast("asyncio.Transport", transport).write(b"side store\n")

    async def said(pod: Pod) -> bytes:
        try:
            reader, writer = await pod.agent.process.start(open_connection("127.0.0.1", 27401))
        except ConnectionError:
            return b"refused"
        with closing(writer):
            return await reader.readline()

    async def play(number: int, first: Pod, second: Pod) -> None:
        await scene.form(number, first, second)
        assert await said(second) == b"", "rank 0 serves nothing there yet"
        server = await first.agent.process.start(scene.loop.create_server(SideStore, "0.0.0.0", 27401))
        assert await said(second) == await said(first) == b"side store\n"
        server.close()
        scene.tell("Forming", number + 1)
        await scene.until(lambda: second.agent.machine.has_ended(number), "the end of the round")
        assert await said(second) == b"refused"

    for pod in (zero, one):
        await pod.start()
    assert await said(one) == b"refused"
    await play(1, zero, one)
    await play(2, one, zero)


@played
async def test_a_member_is_let_in_once_its_certificate_is_there(scene: Scene) -> None:
    """Rank 0 asks for the records before the round forms, and again while one lacks."""
    zero, one = Pod(scene, 0), Pod(scene, 1)
    await zero.start()
    scene.tell("Forming", 1)
    first = zero.agent.do(zero.agent.machine.joining())
    await scene.until(lambda: zero.asks("Join"), "the first join")
    await asyncio.sleep(1)
    await one.start()
    second = one.agent.do(one.agent.machine.joining())
    await scene.until(lambda: one.asks("Join"), "the second join")
    found = scene.server.store.find("elasticworkers", ("ml", one.name))
    assert found is not None
    scene.server.delete("elasticworkers", found, "people")
    scene.tell("Formed", 1, zero, one)
    for pod, join in ((zero, first), (one, second)):
        pod.agent.handed = await join
    await zero.agent.serve_store()
    await one.agent.do(one.agent.machine.awaiting_store(one.agent.handed, scene.loop.time() + 19))
