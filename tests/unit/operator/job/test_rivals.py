# SPDX-License-Identifier: Apache-2.0
"""Two installations that look after the same jobs: which of them goes on with them, on paper."""

import pytest

from elasticjob.api import ElasticJobStatus, LeaseIdentity, RendezvousStatus
from elasticjob_operator.job.rivals import GONE_SECONDS, OUTBID_SECONDS, Rivalry, Rivals


def lease(place: str, created: str) -> LeaseIdentity:
    namespace, name = place.split("/")
    return LeaseIdentity(namespace=namespace, name=name, uid=f"{place} of {created}", created=created)


OLD, YOUNG = lease("b/operator", "2026-01-02T00:00:00Z"), lease("a/operator", "2026-01-02T00:00:01Z")


def agreed(round: int, generation: int = 1) -> ElasticJobStatus:
    return ElasticJobStatus(rendezvous=RendezvousStatus(round=round), observed_generation=generation)


class Installation:
    """The operator that holds `lease`, in `term`."""

    def __init__(self, lease: LeaseIdentity, term: int) -> None:
        self.lease, self.term, self.rivals = lease, term, Rivals()
        self.jobs: dict[str, Rivalry] = {}

    def acts(
        self, jobs: dict[str, ElasticJobStatus], name: str, now: float, after: ElasticJobStatus | None = None
    ) -> bool:
        """It looks at job `name`, a namespace and a name, and writes its status unless it leaves it."""
        rivalry = self.jobs.setdefault(name, Rivalry(self.rivals, name.split("/")[0]))
        before = jobs[name]
        after = (after or before).model_copy(update={"lease": self.lease, "term": self.term})
        if rivalry.left_to(self.lease, before, after, now):
            return False
        if before.lease != self.lease:
            self.term = max(self.term, before.term + 1)
        jobs[name] = after.model_copy(update={"term": self.term})
        rivalry.wrote()
        return True


@pytest.mark.parametrize("terms", [(1, 1), (40, 1), (1, 40)])
@pytest.mark.parametrize(
    ("stays", "leaves"),
    [(OLD, YOUNG), (lease("a/operator", OLD.created), lease("a/operator-2", OLD.created))],
    ids=["the older", "by name"],
)
@pytest.mark.parametrize("young_first", [True, False])
def test_of_two_installations_the_one_with_the_younger_lease_leaves_the_jobs_alone(
    stays: LeaseIdentity, leaves: LeaseIdentity, terms: tuple[int, int], young_first: bool
) -> None:
    both = Installation(stays, terms[0]), Installation(leaves, terms[1])
    jobs, now = {"ml/one": agreed(1), "ml/two": agreed(1)}, 0.0
    for _ in range(6):
        for one in reversed(both) if young_first else both:
            for name in jobs:
                now += 0.25
                one.acts(jobs, name, now)
    assert {status.lease for status in jobs.values()} == {stays}
    assert (both[0].rivals.left, both[1].rivals.left) == ({}, {"ml": stays})
    assert max(one.term for one in both) <= max(terms) + 6


def outbid(young: Installation, old: Installation, jobs: dict[str, ElasticJobStatus], apart: float = 1.0) -> float:
    """`old` has written twice over what `young` wrote, the second time `apart` seconds after the first."""
    now = 0.0
    for _ in range(2):
        assert young.acts(jobs, "ml/one", now)
        now += apart
        assert old.acts(jobs, "ml/one", now)
    return now


def test_one_that_is_outbid_now_and_then_goes_on() -> None:
    """As where another installation is removed, and its last write comes late."""
    young, old, jobs = Installation(YOUNG, 1), Installation(OLD, 1), {"ml/one": agreed(1)}
    assert young.acts(jobs, "ml/one", outbid(young, old, jobs, apart=OUTBID_SECONDS + 1))


def test_a_lease_that_was_deleted_is_no_rivals() -> None:
    jobs = {"ml/one": agreed(1)}
    before, now = Installation(OLD, 1), Installation(lease("b/operator", "2026-02-03T00:00:00Z"), 1)
    for at in range(6):
        assert before.acts(jobs, "ml/one", at)
        assert now.acts(jobs, "ml/one", at)


def test_only_the_namespace_that_both_look_after_is_left() -> None:
    young, old = Installation(YOUNG, 1), Installation(OLD, 1)
    jobs = {"ml/one": agreed(1), "ml/new": ElasticJobStatus(), "ours/one": agreed(1)}
    now = outbid(young, old, jobs)
    assert not young.acts(jobs, "ml/one", now)
    assert not young.acts(jobs, "ml/new", now)
    assert young.acts(jobs, "ours/one", now)


@pytest.mark.parametrize("due", [agreed(2), agreed(1, generation=2)], ids=["a round", "an answer to the spec"])
def test_it_tries_again_when_nothing_has_moved_for_long_although_something_is_due(due: ElasticJobStatus) -> None:
    young, old, jobs = Installation(YOUNG, 1), Installation(OLD, 1), {"ml/one": agreed(1)}
    now = outbid(young, old, jobs)
    assert not young.acts(jobs, "ml/one", now)
    now += 10 * GONE_SECONDS
    assert not young.acts(jobs, "ml/one", now)  # the training needs nothing
    assert not young.acts(jobs, "ml/one", now, due)
    assert not young.acts(jobs, "ml/one", now + GONE_SECONDS - 1, due)
    jobs["ml/one"] = jobs["ml/one"].model_copy(update={"restarts": 1})  # the other is there
    now += GONE_SECONDS
    assert not young.acts(jobs, "ml/one", now, due)
    assert not young.acts(jobs, "ml/one", now + GONE_SECONDS - 1, due)
    assert young.acts(jobs, "ml/one", now + GONE_SECONDS, due)
    assert jobs["ml/one"].lease == YOUNG
