# SPDX-License-Identifier: Apache-2.0
"""Who is doubted when: rank 0 by the others, and the others by rank 0. Times are numbers."""

import pytest

from elasticjob.api import MAX_DOUBTS, Member, Members, RendezvousStatus
from elasticjob.fields import DOUBTS_LENGTH
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.membership.output import Standing
from elasticjob_sidecar.membership.silences import LOOK_SECONDS, Group, Silences, Times, group_of, times_of

TIMES = Times(sign=0.25, doubt=2.0, earliest=0.5, latest=1.5, make=3.0)
FIRST = TIMES.latest + TIMES.make  # until when a line may take to come up
NOBODY = Members()


def of(index: int) -> Member:
    return Member(index, "a.0")


def group(rank: int, workers: int = 4) -> Group:
    return Group(1, rank, Members(map(of, range(workers))), "10.0.0.7:27601/00")


class Watch:
    """A worker that looks at its lines as it should, unless it is stopped."""

    def __init__(self, rank: int, workers: int = 4) -> None:
        self.now = 1000.0
        self.silences, self._looked = Silences(group(rank, workers), TIMES, self.now), self.now
        self.misses = 0

    def run(self, seconds: float, *heard: int) -> None:
        """`heard` give signs all the while."""
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.now += LOOK_SECONDS
            for index in heard:
                self.silences.heard(of(index), self.now)
            if self.now - self._looked >= self.silences.look_seconds:
                self.look()

    def look(self) -> None:
        self._looked = self.now
        self.silences.look(self.now)
        self.misses += self.silences.misses_news()

    def doubts(self, finished: Members = NOBODY) -> list[int]:
        return [member.index for member in self.silences.doubted(finished)]

    def asked(self, *members: int) -> None:
        self.silences.job_seen(Members(map(of, members)), self.now)


def test_rank_0_doubts_who_is_silent_and_nobody_else() -> None:
    watch = Watch(rank=0)
    watch.run(10, 1, 2, 3)
    watch.run(TIMES.doubt - LOOK_SECONDS, 1, 3)
    assert watch.doubts() == []
    watch.run(LOOK_SECONDS, 1, 3)
    assert watch.doubts() == [2]


def test_a_line_that_never_comes_up_is_as_one_that_broke() -> None:
    watch = Watch(rank=0)
    watch.run(FIRST + TIMES.doubt - LOOK_SECONDS, 1, 3)
    assert watch.doubts() == []
    watch.run(LOOK_SECONDS, 1, 3)
    assert watch.doubts() == [2]


@pytest.mark.parametrize(("rank", "others"), [(0, (1, 2, 3)), (1, (0,)), (3, (0,))])
def test_all_are_heard_from_the_first_sign_of_each_until_one_is_silent(rank: int, others: tuple[int, ...]) -> None:
    watch = Watch(rank)
    watch.run(2, *others[1:])
    assert not watch.silences.hears_all(), "nobody would tell of news that the watch misses"
    watch.run(LOOK_SECONDS, *others)
    assert watch.silences.hears_all()
    watch.run(TIMES.doubt, *others[1:])
    assert not watch.silences.hears_all()


def test_who_doubts_later_is_not_sure_of_a_silent_line_before() -> None:
    watch = Watch(rank=40, workers=64)
    watch.run(10, 0)
    watch.asked(0)
    watch.run(20)
    assert (watch.doubts(), watch.silences.hears_all()) == ([], False)


def test_a_line_that_lives_again_ends_the_doubt_but_does_not_flap() -> None:
    watch = Watch(rank=0, workers=2)
    watch.run(1, 1)
    watch.run(TIMES.doubt)
    assert watch.doubts() == [1]
    watch.run(TIMES.doubt - LOOK_SECONDS, 1)
    assert watch.doubts() == [1]
    watch.run(LOOK_SECONDS, 1)
    assert watch.doubts() == []


@pytest.mark.parametrize("rank", [0, 1, 1023])
@pytest.mark.parametrize("stopped", [3.0, 3600.0])
def test_who_was_stopped_doubts_nobody_for_it_and_asks_nobody(stopped: float, rank: int) -> None:
    watch, others = Watch(rank, workers=1024), range(1, 1024) if rank == 0 else [0]
    watch.run(10, *others)
    watch.now += stopped
    watch.look()
    assert watch.doubts() == []
    watch.run(10, *others)
    assert watch.doubts() == []
    assert watch.misses == 0


def test_who_is_stopped_now_and_then_doubts_yet() -> None:
    """A busy machine: its looks come late, each of them."""
    watch = Watch(rank=0)
    watch.run(10, 1, 2, 3)
    for _ in range(4):
        watch.now += 5
        for index in (1, 3):
            watch.silences.heard(of(index), watch.now)
        watch.look()
    assert watch.doubts() == [2]


def test_who_has_finished_may_be_silent() -> None:
    watch = Watch(rank=0)
    watch.run(10, 1, 2)
    assert watch.doubts(finished=Members([of(3)])) == []
    assert watch.doubts() == [3]


def test_what_one_worker_doubts_fits_into_its_record() -> None:
    """However long the ids are, and whoever lives between them."""
    watch = Watch(rank=0, workers=1024)
    watch.run(FIRST + TIMES.doubt, *range(2, 1024, 2))
    assert watch.doubts() == list(range(1, 2 * MAX_DOUBTS, 2))
    assert len(str(Members(Member(999_999_999 - 2 * one, "f" * 32) for one in range(MAX_DOUBTS)))) <= DOUBTS_LENGTH


def test_a_stranger_is_not_heard() -> None:
    watch = Watch(rank=0, workers=2)
    watch.silences.heard(Member(1, "b.0"), watch.now)
    watch.run(FIRST + TIMES.doubt)
    assert watch.doubts() == [1]


def doubt_of_rank_0(rank: int) -> float:
    """Seconds of silence until a member of this rank says so."""
    watch, silent = Watch(rank, workers=1024), 0.0
    watch.run(10, 0)
    while not watch.doubts():
        watch.run(LOOK_SECONDS)
        silent += LOOK_SECONDS
    return silent


@pytest.mark.parametrize(("ranks", "turn"), [((1, 3), 1), ((4, 15), 2), ((16, 63), 3), ((256, 1023), 5)])
def test_the_first_ranks_say_at_once_that_rank_0_is_silent(ranks: tuple[int, int], turn: int) -> None:
    for rank in ranks:
        assert 0 <= doubt_of_rank_0(rank) - turn * TIMES.doubt < TIMES.doubt / 2  # it looks at times


def test_who_is_not_among_the_first_to_say_so_looks_more_seldom() -> None:
    looks = [Watch(rank, workers=1024).silences.look_seconds for rank in (0, 1, 4, 16, 1023)]
    assert looks == [LOOK_SECONDS, LOOK_SECONDS, 2 * LOOK_SECONDS, 3 * LOOK_SECONDS, TIMES.doubt / 2]


@pytest.mark.parametrize(("rank", "says"), [(3, True), (4, False), (1023, False)])
def test_the_others_are_quiet_once_rank_0_was_asked(rank: int, says: bool) -> None:
    watch = Watch(rank, workers=1024)
    watch.run(10, 0)
    watch.run(1)
    watch.asked(0, 5)
    watch.run(60)
    assert bool(watch.doubts()) is says


@pytest.mark.parametrize("about", ["an earlier silence", "others"])
def test_a_challenge_about_something_else_keeps_nobody_quiet(about: str) -> None:
    watch = Watch(4, workers=1024)
    watch.run(10, 0)
    watch.asked(*((0, 5) if about == "an earlier silence" else (5, 6)))
    watch.run(1, 0)
    watch.run(2 * TIMES.doubt)
    assert watch.doubts() == [0]


def test_a_member_hears_rank_0_only() -> None:
    watch = Watch(rank=2)
    watch.run(60, 0)
    assert watch.doubts() == []


# --- while the next round forms


def ended(rank: int, workers: int = 4) -> Watch:
    """Its round has ended after all lines were heard."""
    watch = Watch(rank, workers)
    watch.run(10, *(range(1, workers) if rank == 0 else [0]))
    watch.silences.end(watch.now)
    return watch


def test_who_fell_silent_with_the_fault_that_ended_the_round_is_doubted() -> None:
    watch = ended(rank=0)
    watch.run(TIMES.doubt, 1, 3)
    assert watch.doubts() == [2]


def test_whose_line_had_not_come_up_before_is_not() -> None:
    """The next look is not due yet when the round ends: who was heard since the last one is among those that are
    heard."""
    watch = Watch(rank=0)
    watch.silences.look_seconds = 1.0
    watch.now += 1.2
    watch.silences.heard(of(1), watch.now)
    watch.silences.end(watch.now)
    watch.run(60)
    assert watch.doubts() == [1]


@pytest.mark.parametrize(("rank", "says"), [(3, True), (4, False), (1023, False)])
def test_the_first_ranks_alone_say_that_rank_0_is_silent(rank: int, says: bool) -> None:
    """Its pod may be gone for good, of which nobody is asked: a thousand would say so, one after the other."""
    watch = ended(rank, workers=1024)
    watch.run(60)
    assert bool(watch.doubts()) is says


@pytest.mark.parametrize("rank", [0, 2])
def test_nobody_tells_then_of_news_that_the_watch_misses(rank: int) -> None:
    watch = ended(rank)
    watch.run(LOOK_SECONDS, *((1, 2, 3) if rank == 0 else (0,)))
    assert not watch.silences.hears_all()
    watch.run(60)
    assert watch.misses == 0


# --- a connection to the API server that has fallen silent as well


def test_who_hears_nothing_of_a_silence_asks_the_api_server_once() -> None:
    watch = Watch(rank=2)
    watch.run(10, 0)
    watch.run(1.5 * TIMES.doubt - LOOK_SECONDS)
    assert watch.misses == 0
    watch.run(60)
    assert watch.misses == 1
    watch.run(1, 0)
    watch.run(60)
    assert watch.misses == 2


def test_who_has_heard_of_the_job_since_does_not_ask() -> None:
    watch = Watch(rank=2)
    watch.run(10, 0)
    watch.run(TIMES.doubt)
    watch.asked()
    watch.run(60)
    assert watch.misses == 0


# --- which round has lines


def standing(me: int, **status: object) -> Standing:
    whole = {"phase": "Formed", "round": 3, "participants": "0-2/a.0", "store": "10.0.0.7:27601/00", "challenge": {}}
    job = RendezvousStatus.parse(whole | status)
    return Standing(of(me), Mode.HANDED, job, 0, 0, None, None)


def test_the_round_that_stands_has_lines() -> None:
    members = Members(map(of, range(3)))
    assert group_of(standing(1), None) == Group(3, 1, members, "10.0.0.7:27601/00")
    assert group_of(standing(1, phase="Closed", outcome="Closed"), None) is not None


def test_the_last_one_keeps_them_while_the_next_forms() -> None:
    before = group_of(standing(1), None)
    assert before is not None
    assert group_of(standing(1, phase="Forming", round=4, store=None), before) == before
    assert group_of(standing(1, round=4), before) == before._replace(round=4)


@pytest.mark.parametrize(
    "status",
    [{"round": 5}, {"round": 4, "challenge": None}, {"round": 4, "phase": "Formed", "participants": "0/a.0"}],
    ids=["one between was not seen", "an operator that does not challenge", "without this worker"],
)
def test_the_last_one_keeps_them_no_longer(status: dict[str, object]) -> None:
    before = group_of(standing(1), None)
    assert group_of(standing(1, **{"phase": "Forming"} | status), before) is None


@pytest.mark.parametrize(
    "status",
    [{"phase": "Forming"}, {"participants": "0/a.0"}, {"participants": "0-2/b.0"}, {"challenge": None}],
    ids=["no round", "alone", "without this worker", "an operator that does not challenge"],
)
def test_no_lines(status: dict[str, object]) -> None:
    assert group_of(standing(0, **status), None) is None


def test_a_job_that_is_not_known_has_no_lines() -> None:
    assert group_of(standing(0)._replace(job=None), None) is None


def test_the_challenge_that_asks_this_worker() -> None:
    asked = standing(1, challenge={"number": 4, "members": "0-1/a.0"})
    assert asked.asked == 4
    assert asked._replace(me=of(2)).asked is None
    assert standing(1).asked is None


# --- times


@pytest.mark.parametrize("workers", [2, 128, 256, 1024, 4096])
def test_a_silence_is_some_signs_and_a_stop_of_a_moment_none(workers: int) -> None:
    times = times_of(workers, None)
    assert times.doubt >= 2 * times.sign
    assert times.earliest < times.latest


def test_lines_of_a_large_group_come_one_after_the_other() -> None:
    assert times_of(1024, None).latest - times_of(2, None).latest > 7


def test_what_the_job_names_is_the_time_of_doubt() -> None:
    assert times_of(4, 40).doubt == pytest.approx(16)
