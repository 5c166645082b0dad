# SPDX-License-Identifier: Apache-2.0
"""Who is silent, and how a node's heartbeats are written: virtual time, and a ConfigMap in memory."""

import gc
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob_torch.kubernetes import keep_alive as keep_alive_module
from elasticjob_torch.kubernetes.api import NotFound, Unavailable
from elasticjob_torch.kubernetes.clock import SharedClock
from elasticjob_torch.kubernetes.heartbeats import KEPT, Pace, judged, key_of, read_times, write_times
from elasticjob_torch.kubernetes.keep_alive import WRITE_SECONDS, Heartbeats, KeepAlive
from support.waiting import acquired, joined

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PACE = Pace(interval_seconds=5, attempts=3)


def ago(*seconds: float) -> list[datetime]:
    return [NOW - timedelta(seconds=each) for each in seconds]


def lost(pace: Pace = PACE, **heard: list[datetime]) -> set[str]:
    """As torch has it: whose last heartbeat is longer ago than the expiry."""
    told = judged(heard, NOW, pace)
    return {node for node, last in told.items() if NOW - last > timedelta(seconds=pace.expiry_seconds)}


def test_who_is_silent_while_another_goes_on_is_lost() -> None:
    assert lost(a=ago(26, 21, 16), b=ago(10, 5, 0)) == {"a"}


def test_who_is_silent_for_a_shorter_time_is_not_lost() -> None:
    assert lost(a=ago(24, 19, 14), b=ago(10, 5, 0)) == set()


def test_a_time_in_which_nobody_writes_makes_nobody_lost() -> None:
    assert lost(a=ago(70, 65, 60), b=ago(68, 63, 58), c=ago(75, 70, 65)) == set()


@pytest.mark.parametrize("b", [ago(68, 63, 0), ago(63, 5, 0)])
def test_nor_does_the_first_that_writes_again(b: list[datetime]) -> None:
    assert lost(a=ago(70, 65, 60), b=b, c=ago(75, 70, 65)) == set()


def test_writes_that_take_long_for_all_make_nobody_lost() -> None:
    """Ten seconds between heartbeats: who is one behind is on his way."""
    assert lost(a=ago(36, 26, 16), b=ago(20, 10, 0), c=ago(27, 17, 7)) == set()


def test_two_heartbeats_in_time_and_a_third_that_is_due_are_enough() -> None:
    assert lost(a=ago(15.1), b=ago(15, 10, 5)) == {"a"}


@pytest.mark.parametrize("pace", [10, 20, 60])
def test_where_all_are_slow_a_few_missed_writes_make_nobody_lost(pace: float) -> None:
    """Two heartbeats of one node are not three intervals because of the gaps around them."""
    assert lost(a=ago(3 * pace), b=ago(2 * pace, pace)) == set()
    assert lost(a=ago(4 * pace), b=ago(3 * pace, 2 * pace, pace)) == set()
    assert lost(a=ago(4 * pace), b=ago(3 * pace, 2 * pace, pace, 0)) == {"a"}


def test_who_was_held_up_writes_twice_in_a_row_which_counts_once() -> None:
    assert lost(a=ago(61), b=ago(60, 59.9, 40, 39.9, 20, 19.9)) == set()


def test_node_that_is_there_alone_waits_for_another_that_goes_on() -> None:
    assert lost(a=ago(70, 65, 60)) == set()
    assert lost(a=ago(70, 65, 60), new=ago(10, 5, 0)) == set()
    assert lost(a=ago(70, 65, 60), new=ago(15, 10, 5, 0)) == {"a"}
    assert lost(a=ago(70, 65, 60), new=ago(14, 9, 4)) == set()


def test_all_who_are_silent_are_lost() -> None:
    assert lost(a=ago(60), b=ago(61, 56, 51), c=ago(15, 10, 5, 0), d=ago(16)) == {"a", "b", "d"}


@pytest.mark.parametrize(
    ("attempts", "silent", "is_lost"), [(1, 15, True), (1, 14, False), (10, 49, False), (10, 51, True)]
)
def test_other_limits(attempts: int, silent: float, is_lost: bool) -> None:
    found = lost(Pace(5, attempts), a=ago(silent), b=ago(*range(57, 0, -5)))
    assert found == ({"a"} if is_lost else set())


times = st.lists(st.integers(0, 100), min_size=1, max_size=KEPT).map(lambda each: ago(*sorted(each, reverse=True)))


@given(st.dictionaries(st.sampled_from("abcd"), times, min_size=1))
def test_whoever_wrote_last_is_never_lost(heard: dict[str, list[datetime]]) -> None:
    newest = max(each[-1] for each in heard.values())
    assert not {node for node in lost(**heard) if heard[node][-1] == newest}


def test_heartbeats_survive_the_way_through_the_config_map() -> None:
    assert read_times(write_times(ago(*range(70, 0, -5)))) == ago(*range(5 * KEPT, 0, -5))
    assert key_of("10.0.0.1/7/0") == "heartbeat.10.0.0.1_2F7_2F0"


@pytest.mark.parametrize("text", ["", "soon", "2026-11-21T12:00:00", "0001-01-01T00:00:00+14:00", "\x00 {}"])
def test_what_is_no_time_is_passed_over(text: str) -> None:
    assert read_times(text) == []
    assert read_times(f"{text} {write_times(ago(5))}") == ago(5)


class InMemory:
    """A ConfigMap that fails when it is told to."""

    def __init__(self) -> None:
        self.data: dict[str, str | None] = {}
        self.away = self.closed = self.missing = False
        self.wrote = threading.Semaphore(0)

    def patch(self, *, data: Mapping[str, str | None], patience: float, version: str | None = None) -> None:
        assert version is None, "a heartbeat depends on nobody's writes"
        assert patience == 0, "the next one is due"
        if self.away:
            raise Unavailable("away")
        if self.missing:
            raise NotFound("no such ConfigMap")
        self.data.update(data)
        self.wrote.release()

    def close(self) -> None:
        self.closed = True


def test_only_heartbeats_that_were_written_count(monkeypatch: pytest.MonkeyPatch) -> None:
    local = NOW
    monkeypatch.setattr(keep_alive_module, "now", lambda: local)
    there: Any = InMemory()
    heartbeats = Heartbeats(there, SharedClock(), "a/1/0")
    for second in range(0, 60, 5):
        local, there.away = NOW + timedelta(seconds=second), 10 <= second < 50
        heartbeats.write()
    (text,) = there.data.values()
    assert [int((time - NOW).total_seconds()) for time in read_times(text)] == [0, 5, 50, 55]


def test_a_config_map_that_is_not_made_yet_is_no_trouble_and_one_that_is_gone_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    there: Any = InMemory()
    heartbeats = Heartbeats(there, SharedClock(), "a/1/0")
    there.missing = True
    heartbeats.write()
    assert not caplog.records
    there.missing = False
    heartbeats.write()
    there.missing = True
    heartbeats.write()
    assert [record.getMessage() for record in caplog.records] == ["a heartbeat was not written: no such ConfigMap"]


def test_after_a_write_that_took_long_the_next_two_are_an_interval_apart() -> None:
    there: Any = InMemory()
    began, patch = list[float](), there.patch

    def slow_at_first(**arguments: Any) -> None:
        began.append(time.monotonic())
        if len(began) == 1:
            time.sleep(0.5)
        patch(**arguments)

    there.patch = slow_at_first
    keep_alive = KeepAlive(there, SharedClock(), "a/1/0", 0.2)
    keep_alive.start()
    for _ in range(3):
        acquired(there.wrote, "a heartbeat")
    keep_alive.stop()
    assert began[2] - began[1] > 0.1


def running() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "elasticjob-keep-alive"}


@pytest.mark.parametrize("end", ["stop", "drop"])
def test_heartbeats_end(end: str) -> None:
    there: Any = InMemory()
    keep_alive = KeepAlive(there, SharedClock(), "a/1/0", 0.01)
    before = running()
    keep_alive.start()
    keep_alive.start()
    (thread,) = running() - before
    for _ in range(3):
        acquired(there.wrote, "a heartbeat")
    if end == "stop":
        keep_alive.stop()
    else:
        del keep_alive
        gc.collect()
    joined(thread)
    assert there.closed


WORK = 0.5
HANDSHAKE = 0.25
Speed = Callable[[int, float], float]


def simulated(
    speed: Speed,
    seconds: float,
    limit: float = WRITE_SECONDS,
    work: Callable[[], float] = lambda: WORK,
    slow: bool = False,
) -> set[int]:
    """Seven nodes write for some time, at a `speed` that may be 0; return who was ever lost to anyone.

    As `keep_alive` does it: the next write is due five seconds after the start of the last, or at its end if that is
    later. At full speed a write takes half a second, or what is its `work`, and all see it when it ends. One that takes
    longer than the limit is given up with its connection, and the next has the work of a new one, too. All get their
    own answers slowly if `slow` says so.
    """
    due = {node: node / 4 for node in range(7)}
    connected = set(due)
    under_way: dict[int, tuple[float, float]] = {}  # when it began, and the work that is left
    seen: dict[int, list[datetime]] = {node: [NOW] for node in due}
    ever: set[int] = set()
    for step in range(int(seconds * 4)):
        at = step / 4
        for node in due:
            if node not in under_way and due[node] <= at:
                whole = work() + HANDSHAKE * (node not in connected)
                due[node], under_way[node] = at + PACE.interval_seconds, (at, whole)
            if node in under_way:
                began, left = under_way[node]
                under_way[node] = (began, left - speed(node, at) / 4)
                if under_way[node][1] <= 0:
                    del under_way[node]
                    connected.add(node)
                    seen[node] = [*seen[node], NOW + timedelta(seconds=began)][-KEPT:]
                elif at - began >= limit:
                    del under_way[node]
                    connected.discard(node)
        now = NOW + timedelta(seconds=at)
        told = judged(seen, now, PACE, now if slow else None)
        ever |= {node for node, last in told.items() if at - (last - NOW).total_seconds() > PACE.expiry_seconds}
    return ever


def test_writes_of_six_seconds_make_nobody_lost() -> None:
    assert simulated(lambda node, at: WORK / 6, 300) == set()


def test_a_machine_that_stands_still_for_twenty_seconds_loses_nobody() -> None:
    assert simulated(lambda node, at: float(not 100 <= at < 120 + node / 2), 300) == set()


def test_a_node_that_stops_is_lost_among_slow_ones_too() -> None:
    assert simulated(lambda node, at: 0.0 if node == 3 and at > 100 else WORK / 4, 300) == {3}


@given(
    stalls=st.lists(st.tuples(st.sampled_from([0, *(WORK / n for n in range(1, 60))]), st.floats(1, 200)), max_size=4),
    share=st.lists(st.floats(0.9, 1), min_size=7, max_size=7),
)
def test_a_node_that_is_held_up_together_with_all_others_is_never_lost(
    stalls: list[tuple[float, float]], share: list[float]
) -> None:
    """Each of `stalls` is a speed, 0 is none, and how long it lasts. Nodes differ by a tenth."""

    def speed(node: int, at: float) -> float:
        end = 20.0
        for slow, lasts in stalls:
            end += lasts
            if 20 <= at < end:
                return slow * share[node]
        return share[node]

    assert simulated(speed, 20 + sum(lasts for _, lasts in stalls) + 100) == set()


def test_a_short_limit_would_lose_nodes_whose_writes_are_given_up_beside_others() -> None:
    """Which is why a heartbeat's is longer than a server's own: six finish their writes in 4.5 s, one in 5.5 s."""

    def speed(node: int, at: float) -> float:
        return 1 if at < 20 else WORK / (5.5 if node == 3 else 4.5)

    assert simulated(speed, 100, limit=5) == {3}
    assert simulated(speed, 100) == set()


@given(st.randoms(use_true_random=False))
def test_where_answers_are_slow_nobody_is_lost_whose_writes_take_longer_than_the_others(chance: Random) -> None:
    assert simulated(lambda node, at: 1, 300, work=lambda: chance.choice([0.5, 5, 25]), slow=True) == set()


@pytest.mark.parametrize("took", [0.5, 5, 30])
def test_a_node_that_stops_where_answers_are_slow_is_lost_once_another_has_written_all_that_are_kept(
    took: float,
) -> None:
    within = (KEPT + 3) * max(PACE.interval_seconds, took)

    def ends(node: int, at: float) -> float:
        return 0.0 if node == 3 and at > 100 else 1.0

    assert simulated(ends, 100 + within, work=lambda: took, slow=True) == {3}
    assert simulated(ends, 100 + 4 * PACE.interval_seconds, work=lambda: took, slow=True) == set()


def test_an_answer_was_slow_for_as_long_as_a_node_may_be_silent() -> None:
    heard = {"a": ago(26, 21, 16), "b": ago(10, 5, 0)}
    assert judged(heard, NOW, PACE, *ago(14))["a"] > ago(16)[0]
    assert judged(heard, NOW, PACE, *ago(15))["a"] == ago(16)[0]


@given(st.floats(0.5, 30))
def test_a_node_that_stops_alone_is_lost_in_bounded_time(took: float) -> None:
    """Once the others have written one heartbeat more than may fail, and two that were under way."""
    within = (PACE.attempts + 4) * max(PACE.interval_seconds, took)
    assert simulated(lambda node, at: 0.0 if node == 3 and at > 100 else 0.5 / took, 100 + within) == {3}
