# SPDX-License-Identifier: Apache-2.0
"""What is reported of workers whose torchrun has ended in success while their container continues. Pure.

Such a container may upload results or start the next torchrun. If it fails, the kubelet restarts it. The rules decide
when that has taken too long or has failed too often; this module puts it into words.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from elasticjob.api import Condition, ElasticJobSpec, ElasticJobStatus, RoundRecord
from elasticjob.blocker_reasons import Reason
from elasticjob.rendezvous import Event, Member, Worker
from elasticjob.rendezvous.endings import failed_after_success
from elasticjob.rendezvous.words import first_few
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.report import Report

FINISHING, CONTAINERS_RUN = "Finishing", "ContainersRun"
NAMED = 3

Crashes = Mapping[Member, int]  # how often each container had been restarted when that was last announced


class FinishingFound(NamedTuple):
    """What one step finds, remembered until the next. `waits`: the job waits only for containers that continue after
    success, those of the workers in `sentence`. `failed`: the containers that have failed after it, and how often they
    still may. `sentence` and `failed` are empty if there is nothing to report. `events`: the events to announce."""

    waits: bool = False
    sentence: str = ""
    failed: str = ""
    crashes: Crashes = MappingProxyType({})
    events: tuple[Event, ...] = ()

    @property
    def message(self) -> str:
        return "; ".join(filter(None, (self.sentence, self.failed)))


class FinishingContainers(Concern):
    """The containers of one job that continue after success."""

    def __init__(self) -> None:
        self._crashes: Crashes = {}

    def judge(self, report: Report) -> Report:
        return report.noting(finishing_of(report, self._crashes))

    def after(self, report: Report) -> tuple[Event, ...]:
        self._crashes = report.of(FinishingFound).crashes
        return report.of(FinishingFound).events


def finishing_of(report: Report, known: Crashes) -> FinishingFound:
    """What is to be reported. `known`: the crashes that the last step found."""
    spec, state, workers = report.spec, report.decision.state, report.workers
    clocks = {} if state.ended else state.clocks.finishing
    if not clocks:
        return FinishingFound()
    there = {one.member: one for one in workers if one.member is not None and one.member in clocks}
    waited = sorted(member.index for member, one in clocks.items() if one.since is not None and member in there)
    failed = {one: worker for one, worker in there.items() if worker.crashes > clocks[one].crashes}
    failures = {one: _failure(spec, worker, worker.crashes - clocks[one].crashes) for one, worker in failed.items()}
    fresh = (one for one, worker in failed.items() if worker.crashes > known.get(one, clocks[one].crashes))
    shown = list(failures.values())[:NAMED]
    return FinishingFound(
        waits=bool(waited),
        sentence=_sentence(report, waited) if waited else "",
        failed="; ".join(shown + ([f"and {len(failures) - NAMED} more"] if len(failures) > NAMED else [])),
        crashes={one: worker.crashes for one, worker in there.items()},
        events=tuple(Event(Reason.CONTAINER_FAILED, failures[one], warning=True, worker=one.index) for one in fresh),
    )


def is_waiting(status: ElasticJobStatus) -> bool:
    """Whether `status` says that the job waits only for containers that continue after success."""
    return _condition(status) is not None


def succeeded(record: RoundRecord, now: str) -> RoundRecord:
    """The record of the standing round, all of whose workers have ended in success."""
    if record.succeeded is not None:
        return record
    passed = (datetime.fromisoformat(now) - datetime.fromisoformat(record.time)).total_seconds()
    return record.model_copy(update={"succeeded": max(0.0, passed)})


def _condition(status: ElasticJobStatus) -> Condition | None:
    found = (one for one in status.conditions if one.type == FINISHING and one.status == "True")
    return next(found, None)


def _sentence(report: Report, waited: list[int]) -> str:
    """The sentence with the limit as a time of day: a status is not rewritten for each second that passes."""
    spec, state, known = report.spec, report.decision.state, _condition(report.before)
    since = datetime.fromisoformat(known.last_transition_time if known else report.now)
    ends = since + timedelta(seconds=spec.finish_seconds)
    several = f"the containers of workers {first_few(waited)} go on"
    containers = f"the container of worker {waited[0]} goes on" if len(waited) == 1 else several
    if state.phase is RendezvousPhase.FORMING:
        text = f"stage {state.stage} waits for the next torchrun of each worker, and {containers} without one"
    else:
        all = "worker 0" if len(state.done) == 1 else f"all {len(state.done)} workers"
        text = f"torchrun has ended in success in {all}, and {containers}"
    return f"{text}, until {ends:%Y-%m-%dT%H:%M:%SZ} at most (spec.finishSeconds is {spec.finish_seconds})"


def _failure(spec: ElasticJobSpec, worker: Worker, times: int) -> str:
    left = spec.max_restarts - times
    may = "with the next such failure the job has failed" if left < 1 else f"it may fail {left} more times"
    may = "it may fail once more" if left == 1 else may
    failed = failed_after_success(worker, times)
    return f"{failed} and is started again: {may} (spec.maxRestarts is {spec.max_restarts})"
