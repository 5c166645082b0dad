# SPDX-License-Identifier: Apache-2.0
"""The last rounds as a time line, and the share of the time spent training, as far as the status records it.

A status keeps the last five formed rounds. A round lasts until the next one is opened. From then until that one forms,
no worker trains; nor does a round whose processes are starting. While containers continue after success, in a round or
between two stages, time counts as neither trained nor lost.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from elasticjob.api import CAUSE_ANNOTATION, RoundRecord
from elasticjob.objects import Object
from elasticjob.rendezvous.model import COUNTED_CAUSES
from elasticjob.terms import Loss, RoundCause
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.scene import event_time, events_of
from elasticjob_cli.reading.times import moment, seconds_between

# causes for which the training itself breaks a round, unless a loss explains it: rule 10 of docs/protocol.md
TRAININGS_OWN: frozenset[str] = COUNTED_CAUSES | {
    RoundCause.TRAINER_STARTED_AGAIN,
    RoundCause.TRAINING_HUNG,
    Loss.POD_FAILED,
    Loss.TRAINER_CRASHED,
    Loss.TRAINER_HUNG,
    Loss.ENDED_UNFINISHED,
}


@dataclass(frozen=True, slots=True)
class FormedRound:
    """One formed round; times are in seconds. `formed_after`: the time without a round before it. `lasted`: how long it
    stood, so far for the standing one. `starting`: how long its processes took to start, None if unknown. `finishing`:
    how long containers continued after the success of all workers. `cause`: one word. `reason`: a sentence. `counted`:
    whether the cause counted against maxRestarts. `why`: why it did or did not."""

    number: int
    size: int
    formed: datetime | None
    formed_after: float
    lasted: float | None
    starting: float | None
    finishing: float | None
    cause: str
    reason: str
    counted: bool
    why: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"formed": self.formed.isoformat() if self.formed else None}


@dataclass(frozen=True, slots=True)
class Goodput:
    """Seconds since `since` spent training, starting processes, waiting for containers that continue after success, and
    lost between rounds. `whole`: `since` is the job's start; otherwise it is the oldest recorded round. `share`: the
    share of the time spent training, without the time in which containers continued."""

    trained: float
    starting: float
    finishing: float
    lost: float
    since: datetime | None
    whole: bool

    @property
    def share(self) -> float | None:
        total = self.trained + self.starting + self.lost
        return self.trained / total if total else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"since": self.since.isoformat() if self.since else None, "share": self.share}


def rounds_of(look: Look) -> list[FormedRound]:
    """The rounds in the status, the oldest first."""
    kept = look.status.history
    if not kept:
        return []
    ends = [_opened(after) for after in kept[1:]] + [_end_of_last(look)]
    events = events_of(look.scene, "ElasticJob", look.name)
    tells = any(record.started is not None for record in kept)
    return [
        _round(record, end, events, starts=look.starts if look.trains and record is kept[-1] else tells)
        for record, end in zip(kept, ends, strict=True)
    ]


def goodput(look: Look, rounds: Sequence[FormedRound]) -> Goodput | None:
    """The goodput; None before the first round."""
    if not rounds:
        return None
    whole = rounds[0].number == 1
    starting = sum(one.starting or 0.0 for one in rounds)
    finishing = sum(one.finishing or 0.0 for one in rounds)
    trained = sum(one.lasted or 0.0 for one in rounds) - starting - finishing
    between = [(one.cause, one.formed_after) for one in rounds[0 if whole else 1 :]]
    between.append((look.status.rendezvous.cause, _lost_now(look)))
    finishing += sum(seconds for cause, seconds in between if cause == RoundCause.NEXT_STAGE)
    lost = sum(seconds for cause, seconds in between if cause != RoundCause.NEXT_STAGE)
    since = look.created if whole else rounds[0].formed
    return Goodput(trained, starting, finishing, lost, since, whole)


def _round(record: RoundRecord, end: datetime | None, events: Iterable[Object], *, starts: bool) -> FormedRound:
    """One round. `starts`: a round without a recorded start never came to train."""
    formed = moment(record.time)
    lasted = None if formed is None or end is None else seconds_between(formed, end)
    starting = lasted if record.started is None and starts else record.started
    starting = starting if starting is None or lasted is None else min(starting, lasted)
    trained = record.succeeded
    finishing = None if lasted is None or trained is None else max(0.0, lasted - max(trained, starting or 0.0))
    why = _why_counted(record, events)
    before, cause = record.seconds, record.cause
    times = before, lasted, starting, finishing
    return FormedRound(record.round, record.size, formed, *times, cause, record.reason, record.counted, why)


def _why_counted(record: RoundRecord, events: Iterable[Object]) -> str:
    """Why the round's cause counted, or did not."""
    if record.round == 1:
        return "it is the first"
    if record.counted:
        return "it counts as a failure"
    explains = _explaining(record, events) if record.cause in TRAININGS_OWN else None
    return f"the loss explains it: {explains}" if explains else "it does not count as a failure"


def _explaining(record: RoundRecord, events: Iterable[Object]) -> str | None:
    """The message of the loss that explains a failure of the training; None if there is none."""
    opened, formed = _opened(record), moment(record.time)
    for event in events:
        at, cause = moment(event_time(event)), event["metadata"].get("annotations", {}).get(CAUSE_ANNOTATION)
        between = at and opened and formed and opened - timedelta(seconds=2) <= at <= formed + timedelta(seconds=2)
        if between and event.get("reason") == "WorkerLost" and cause and cause not in TRAININGS_OWN:
            return str(event["message"])
    return None


def _opened(record: RoundRecord) -> datetime | None:
    formed = moment(record.time)
    return formed - timedelta(seconds=record.seconds) if formed else None


def _end_of_last(look: Look) -> datetime | None:
    """When the last formed round ended; now if it stands."""
    if look.trains:
        return look.scene.now
    found = look.condition("Complete") or look.condition("Rendezvoused")
    return moment(found.last_transition_time) if found else None


def _lost_now(look: Look) -> float:
    """Seconds since the last round ended, while another is to form. A suspended job loses no time."""
    if look.trains or look.has_ended or look.spec.suspend:
        return 0.0
    return look.changed_since or 0.0
