# SPDX-License-Identifier: Apache-2.0
"""Who is suspected when: rank 0 by the others, and the others by rank 0. Times are numbers."""

import pytest

from elasticjob.api import MAX_SUSPECTS, Member, Members, RendezvousStatus
from elasticjob.fields import SUSPECTS_LENGTH
from elasticjob_sidecar.membership.link_monitor import (
    LOOK_SECONDS,
    LinkGroup,
    LinkMonitor,
    LinkTimes,
    group_of,
    times_of,
)
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.membership.output import Standing

TIMES = LinkTimes(heartbeat=0.25, suspicion=2.0, earliest=0.5, latest=1.5, make=3.0)
FIRST = TIMES.latest + TIMES.make  # until when a line may take to come up
NOBODY = Members()


def of(index: int) -> Member:
    return Member(index, "a.0")


def group(rank: int, workers: int = 4) -> LinkGroup:
    return LinkGroup(1, rank, Members(map(of, range(workers))), "10.0.0.7:27601/00")


class Watch:
    """A worker that looks at its links as it should, unless it is stopped."""

    def __init__(self, rank: int, workers: int = 4) -> None:
        self.now = 1000.0
        self.monitor, self._looked = LinkMonitor(group(rank, workers), TIMES, self.now), self.now
        self.misses = 0

    def run(self, seconds: float, *heard: int) -> None:
        """`heard` beat all the while."""
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.now += LOOK_SECONDS
            for index in heard:
                self.monitor.heard(of(index), self.now)
            if self.now - self._looked >= self.monitor.look_seconds:
                self.look()

    def look(self) -> None:
        self._looked = self.now
        self.monitor.look(self.now)
        self.misses += self.monitor.misses_updates()

    def suspects(self, finished: Members = NOBODY) -> list[int]:
        return [member.index for member in self.monitor.suspects(finished)]

    def asked(self, *members: int) -> None:
        self.monitor.job_seen(Members(map(of, members)), self.now)


def test_rank_0_suspicion_who_is_silent_and_nobody_else() -> None:
    watch = Watch(rank=0)
    watch.run(10, 1, 2, 3)
    watch.run(TIMES.suspicion - LOOK_SECONDS, 1, 3)
    assert watch.suspects() == []
    watch.run(LOOK_SECONDS, 1, 3)
    assert watch.suspects() == [2]


def test_a_line_that_never_comes_up_is_as_one_that_broke() -> None:
    watch = Watch(rank=0)
    watch.run(FIRST + TIMES.suspicion - LOOK_SECONDS, 1, 3)
    assert watch.suspects() == []
    watch.run(LOOK_SECONDS, 1, 3)
    assert watch.suspects() == [2]


@pytest.mark.parametrize(("rank", "others"), [(0, (1, 2, 3)), (1, (0,)), (3, (0,))])
def test_all_are_heard_from_the_first_sign_of_each_until_one_is_silent(rank: int, others: tuple[int, ...]) -> None:
    watch = Watch(rank)
    watch.run(2, *others[1:])
    assert not watch.monitor.hears_all(), "nobody would tell of news that the watch misses"
    watch.run(LOOK_SECONDS, *others)
    assert watch.monitor.hears_all()
    watch.run(TIMES.suspicion, *others[1:])
    assert not watch.monitor.hears_all()


def test_who_suspicion_later_is_not_sure_of_a_silent_line_before() -> None:
    watch = Watch(rank=40, workers=64)
    watch.run(10, 0)
    watch.asked(0)
    watch.run(20)
    assert (watch.suspects(), watch.monitor.hears_all()) == ([], False)


def test_a_line_that_lives_again_ends_the_suspicion_but_does_not_flap() -> None:
    watch = Watch(rank=0, workers=2)
    watch.run(1, 1)
    watch.run(TIMES.suspicion)
    assert watch.suspects() == [1]
    watch.run(TIMES.suspicion - LOOK_SECONDS, 1)
    assert watch.suspects() == [1]
    watch.run(LOOK_SECONDS, 1)
    assert watch.suspects() == []


@pytest.mark.parametrize("rank", [0, 1, 1023])
@pytest.mark.parametrize("stopped", [3.0, 3600.0])
def test_who_was_stopped_suspects_nobody_for_it_and_asks_nobody(stopped: float, rank: int) -> None:
    watch, others = Watch(rank, workers=1024), range(1, 1024) if rank == 0 else [0]
    watch.run(10, *others)
    watch.now += stopped
    watch.look()
    assert watch.suspects() == []
    watch.run(10, *others)
    assert watch.suspects() == []
    assert watch.misses == 0


def test_who_is_stopped_now_and_then_suspects_yet() -> None:
    """A busy machine: its looks come late, each of them."""
    watch = Watch(rank=0)
    watch.run(10, 1, 2, 3)
    for _ in range(4):
        watch.now += 5
        for index in (1, 3):
            watch.monitor.heard(of(index), watch.now)
        watch.look()
    assert watch.suspects() == [2]


def test_who_has_finished_may_be_silent() -> None:
    watch = Watch(rank=0)
    watch.run(10, 1, 2)
    assert watch.suspects(finished=Members([of(3)])) == []
    assert watch.suspects() == [3]


def test_what_one_worker_suspicion_fits_into_its_record() -> None:
    """However long the ids are, and whoever lives between them."""
    watch = Watch(rank=0, workers=1024)
    watch.run(FIRST + TIMES.suspicion, *range(2, 1024, 2))
    assert watch.suspects() == list(range(1, 2 * MAX_SUSPECTS, 2))
    assert len(str(Members(Member(999_999_999 - 2 * one, "f" * 32) for one in range(MAX_SUSPECTS)))) <= SUSPECTS_LENGTH


def test_a_stranger_is_not_heard() -> None:
    watch = Watch(rank=0, workers=2)
    watch.monitor.heard(Member(1, "b.0"), watch.now)
    watch.run(FIRST + TIMES.suspicion)
    assert watch.suspects() == [1]


def doubt_of_rank_0(rank: int) -> float:
    """Seconds of silence until a member of this rank says so."""
    watch, silent = Watch(rank, workers=1024), 0.0
    watch.run(10, 0)
    while not watch.suspects():
        watch.run(LOOK_SECONDS)
        silent += LOOK_SECONDS
    return silent


@pytest.mark.parametrize(("ranks", "turn"), [((1, 3), 1), ((4, 15), 2), ((16, 63), 3), ((256, 1023), 5)])
def test_the_first_ranks_say_at_once_that_rank_0_is_silent(ranks: tuple[int, int], turn: int) -> None:
    for rank in ranks:
        assert 0 <= doubt_of_rank_0(rank) - turn * TIMES.suspicion < TIMES.suspicion / 2  # it looks at times


def test_who_is_not_among_the_first_to_say_so_looks_more_seldom() -> None:
    looks = [Watch(rank, workers=1024).monitor.look_seconds for rank in (0, 1, 4, 16, 1023)]
    assert looks == [LOOK_SECONDS, LOOK_SECONDS, 2 * LOOK_SECONDS, 3 * LOOK_SECONDS, TIMES.suspicion / 2]


@pytest.mark.parametrize(("rank", "says"), [(3, True), (4, False), (1023, False)])
def test_the_others_are_quiet_once_rank_0_was_asked(rank: int, says: bool) -> None:
    watch = Watch(rank, workers=1024)
    watch.run(10, 0)
    watch.run(1)
    watch.asked(0, 5)
    watch.run(60)
    assert bool(watch.suspects()) is says


@pytest.mark.parametrize("about", ["an earlier silence", "others"])
def test_a_ping_about_something_else_keeps_nobody_quiet(about: str) -> None:
    watch = Watch(4, workers=1024)
    watch.run(10, 0)
    watch.asked(*((0, 5) if about == "an earlier silence" else (5, 6)))
    watch.run(1, 0)
    watch.run(2 * TIMES.suspicion)
    assert watch.suspects() == [0]


def test_a_member_hears_rank_0_only() -> None:
    watch = Watch(rank=2)
    watch.run(60, 0)
    assert watch.suspects() == []


# --- while the next round forms


def ended(rank: int, workers: int = 4) -> Watch:
    """Its round has ended after all links were heard."""
    watch = Watch(rank, workers)
    watch.run(10, *(range(1, workers) if rank == 0 else [0]))
    watch.monitor.end(watch.now)
    return watch


def test_who_fell_silent_with_the_fault_that_ended_the_round_is_suspected() -> None:
    watch = ended(rank=0)
    watch.run(TIMES.suspicion, 1, 3)
    assert watch.suspects() == [2]


def test_whose_line_had_not_come_up_before_is_not() -> None:
    """The next look is not due yet when the round ends: who was heard since the last one is among those that are
    heard."""
    watch = Watch(rank=0)
    watch.monitor.look_seconds = 1.0
    watch.now += 1.2
    watch.monitor.heard(of(1), watch.now)
    watch.monitor.end(watch.now)
    watch.run(60)
    assert watch.suspects() == [1]


@pytest.mark.parametrize(("rank", "says"), [(3, True), (4, False), (1023, False)])
def test_the_first_ranks_alone_say_that_rank_0_is_silent(rank: int, says: bool) -> None:
    """Its pod may be gone for good, of which nobody is asked: a thousand would say so, one after the other."""
    watch = ended(rank, workers=1024)
    watch.run(60)
    assert bool(watch.suspects()) is says


@pytest.mark.parametrize("rank", [0, 2])
def test_nobody_tells_then_of_news_that_the_watch_misses(rank: int) -> None:
    watch = ended(rank)
    watch.run(LOOK_SECONDS, *((1, 2, 3) if rank == 0 else (0,)))
    assert not watch.monitor.hears_all()
    watch.run(60)
    assert watch.misses == 0


# --- a connection to the API server that has fallen silent as well


def test_who_hears_nothing_of_a_silence_asks_the_api_server_once() -> None:
    watch = Watch(rank=2)
    watch.run(10, 0)
    watch.run(1.5 * TIMES.suspicion - LOOK_SECONDS)
    assert watch.misses == 0
    watch.run(60)
    assert watch.misses == 1
    watch.run(1, 0)
    watch.run(60)
    assert watch.misses == 2


def test_who_has_heard_of_the_job_since_does_not_ask() -> None:
    watch = Watch(rank=2)
    watch.run(10, 0)
    watch.run(TIMES.suspicion)
    watch.asked()
    watch.run(60)
    assert watch.misses == 0


# --- which round has links


def standing(me: int, **status: object) -> Standing:
    whole = {"phase": "Formed", "round": 3, "participants": "0-2/a.0", "store": "10.0.0.7:27601/00", "ping": {}}
    job = RendezvousStatus.parse(whole | status)
    return Standing(of(me), Mode.HANDED, job, 0, 0, None, None)


def test_the_round_that_stands_has_links() -> None:
    members = Members(map(of, range(3)))
    assert group_of(standing(1), None) == LinkGroup(3, 1, members, "10.0.0.7:27601/00")
    assert group_of(standing(1, phase="Closed", outcome="Closed"), None) is not None


def test_the_last_one_keeps_them_while_the_next_forms() -> None:
    before = group_of(standing(1), None)
    assert before is not None
    assert group_of(standing(1, phase="Forming", round=4, store=None), before) == before
    assert group_of(standing(1, round=4), before) == before._replace(round=4)


@pytest.mark.parametrize(
    "status",
    [{"round": 5}, {"round": 4, "phase": "Formed", "participants": "0/a.0"}],
    ids=["one between was not seen", "without this worker"],
)
def test_the_last_one_keeps_them_no_longer(status: dict[str, object]) -> None:
    before = group_of(standing(1), None)
    assert group_of(standing(1, **{"phase": "Forming"} | status), before) is None


@pytest.mark.parametrize(
    "status",
    [{"phase": "Forming"}, {"participants": "0/a.0"}, {"participants": "0-2/b.0"}],
    ids=["no round", "alone", "without this worker"],
)
def test_no_links(status: dict[str, object]) -> None:
    assert group_of(standing(0, **status), None) is None


def test_a_job_that_is_not_known_has_no_links() -> None:
    assert group_of(standing(0)._replace(job=None), None) is None


def test_the_ping_that_names_this_worker() -> None:
    pinged = standing(1, ping={"number": 4, "members": "0-1/a.0"})
    assert pinged.pinged == 4
    assert pinged._replace(me=of(2)).pinged is None
    assert standing(1).pinged is None


# --- times


@pytest.mark.parametrize("workers", [2, 128, 256, 1024, 4096])
def test_a_silence_is_some_heartbeats_and_a_stop_of_a_moment_none(workers: int) -> None:
    times = times_of(workers, None)
    assert times.suspicion >= 2 * times.heartbeat
    assert times.earliest < times.latest


def test_lines_of_a_large_group_come_one_after_the_other() -> None:
    assert times_of(1024, None).latest - times_of(2, None).latest > 7


def test_what_the_job_names_is_the_time_of_suspicion() -> None:
    assert times_of(4, 40).suspicion == pytest.approx(16)
