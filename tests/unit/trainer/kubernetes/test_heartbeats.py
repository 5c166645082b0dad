"""Who is silent, and how a node's heartbeats are written: virtual time, and a ConfigMap in memory."""

import gc
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob_torch.kubernetes import keep_alive as keep_alive_module
from elasticjob_torch.kubernetes.api import Unavailable
from elasticjob_torch.kubernetes.clock import SharedClock
from elasticjob_torch.kubernetes.heartbeats import KEPT, Pace, judged, key_of, read_times, write_times
from elasticjob_torch.kubernetes.keep_alive import Heartbeats, KeepAlive
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


def test_node_that_is_there_alone_waits_for_another_that_goes_on() -> None:
    assert lost(a=ago(70, 65, 60)) == set()
    assert lost(a=ago(70, 65, 60), new=ago(5, 0)) == set()
    assert lost(a=ago(70, 65, 60), new=ago(10, 5, 0)) == {"a"}
    assert lost(a=ago(70, 65, 60), new=ago(9, 4)) == set()


def test_all_who_are_silent_are_lost() -> None:
    assert lost(a=ago(60), b=ago(61, 56, 51), c=ago(10, 5, 0), d=ago(16)) == {"a", "b", "d"}


@pytest.mark.parametrize(
    ("attempts", "silent", "is_lost"), [(1, 6, True), (1, 4, False), (10, 49, False), (10, 51, True)]
)
def test_other_limits(attempts: int, silent: float, is_lost: bool) -> None:
    found = lost(Pace(5, attempts), a=ago(silent), b=ago(17, 12, 7, 2))
    assert found == ({"a"} if is_lost else set())


times = st.lists(st.integers(0, 100), min_size=1, max_size=KEPT).map(lambda each: ago(*sorted(each, reverse=True)))


@given(st.dictionaries(st.sampled_from("abcd"), times, min_size=1))
def test_whoever_wrote_last_is_never_lost(heard: dict[str, list[datetime]]) -> None:
    newest = max(each[-1] for each in heard.values())
    assert not {node for node in lost(**heard) if heard[node][-1] == newest}


def test_heartbeats_survive_the_way_through_the_config_map() -> None:
    assert read_times(write_times(ago(25, 20, 15, 10, 5))) == ago(20, 15, 10, 5)
    assert key_of("10.0.0.1/7/0") == "heartbeat.10.0.0.1_2F7_2F0"


@pytest.mark.parametrize("text", ["", "soon", "2026-11-21T12:00:00", "0001-01-01T00:00:00+14:00", "\x00 {}"])
def test_what_is_no_time_is_passed_over(text: str) -> None:
    assert read_times(text) == []
    assert read_times(f"{text} {write_times(ago(5))}") == ago(5)


class InMemory:
    """A ConfigMap that fails when it is told to."""

    def __init__(self) -> None:
        self.data: dict[str, str | None] = {}
        self.away = self.closed = False
        self.wrote = threading.Semaphore(0)

    def patch(self, *, data: Mapping[str, str | None], patience: float, version: str | None = None) -> None:
        assert version is None, "a heartbeat depends on nobody's writes"
        assert patience == 0, "the next one is due"
        if self.away:
            raise Unavailable("away")
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


def simulated(slow: Callable[[int, float], float], seconds: float) -> set[int]:
    """Seven nodes write for some time, a write taking as long as ``slow`` says; return who was ever lost to anyone.

    As `keep_alive` does it: the next write is due five seconds after the start of the last, or at its end if that is
    later. What is written is seen by all when the write ends.
    """
    due = dict.fromkeys(range(7), 0.0)
    seen: dict[int, list[datetime]] = {node: [NOW] for node in due}
    ends: list[tuple[float, int, float]] = []
    ever: set[int] = set()
    for step in range(int(seconds * 4)):
        at = step / 4
        for node, time in due.items():
            if time <= at:
                took = slow(node, at)
                ends.append((at + took, node, at))
                due[node] = at + max(PACE.interval_seconds, took)
        for end, node, began in sorted(one for one in ends if one[0] <= at):
            seen[node] = [*seen[node], NOW + timedelta(seconds=began)][-KEPT:]
            ends.remove((end, node, began))
        told = judged(seen, NOW + timedelta(seconds=at), PACE)
        ever |= {node for node, last in told.items() if at - (last - NOW).total_seconds() > PACE.expiry_seconds}
    return ever


def test_writes_of_six_seconds_make_nobody_lost() -> None:
    assert simulated(lambda node, at: 6.0, 300) == set()


def test_a_machine_that_stands_still_for_twenty_seconds_loses_nobody() -> None:
    assert simulated(lambda node, at: 120 - at + node / 2 if 100 <= at < 120 else 0.5, 300) == set()


def test_a_node_that_stops_is_lost_among_slow_ones_too() -> None:
    assert simulated(lambda node, at: 1000.0 if node == 3 and at > 100 else 4.0, 300) == {3}
