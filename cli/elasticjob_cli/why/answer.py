# SPDX-License-Identifier: Apache-2.0
"""One paragraph: what the job does now, what keeps it from its full size, and what follows."""

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from elasticjob.rendezvous.words import round_of
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.look import look as read
from elasticjob_cli.reading.scene import Scene
from elasticjob_cli.reading.times import length, seconds_between
from elasticjob_cli.reading.words import listed, names, plural
from elasticjob_cli.reading.worker import WorkerView
from elasticjob_cli.why.causes import Cause, absent_spares, causes_of
from elasticjob_cli.why.rows import LocalReason

ENDS = frozenset(
    {LocalReason.DELETED, LocalReason.COMPLETE, LocalReason.FAILED, LocalReason.MANAGED}
)  # no round is mentioned then


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer of `why`. `full`: all wanted workers train. `trains`: a round stands. `paragraph` consists of `now`,
    the causes' sentences and remedies, and `follows`."""

    job: str
    namespace: str
    full: bool
    trains: bool
    now: str
    causes: tuple[Cause, ...]
    follows: str

    @property
    def paragraph(self) -> str:
        return " ".join(part for part in (self.now, *_sentences_of(self), self.follows) if part)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"paragraph": self.paragraph}


def why(scene: Scene) -> Explanation:
    """Why the job of `scene` does not train at full size now. Raises CliError if the job cannot be read."""
    return answer(read(scene))


def answer(look: Look) -> Explanation:
    found = tuple(causes_of(look))
    ended = any(one.reason in ENDS for one in found)
    return Explanation(
        job=look.name,
        namespace=look.namespace,
        full=look.is_full and not ended,
        trains=look.trains,
        now="" if ended else _now(look),
        causes=found,
        follows="" if ended or look.broken else _follows(look, found),
    )


def _sentences_of(answer: Explanation) -> list[str]:
    """One sentence for each cause of the job, and one for all causes of workers, followed by each remedy once."""
    sentences = [f"{one.sentence} {one.remedy}".strip() for one in answer.causes if not one.workers]
    kept = [one for one in answer.causes if one.workers]
    if kept:
        verb, word = ("trains", "without") if answer.trains else ("waits", "for")
        clauses = f"; and {word} ".join(one.sentence for one in kept)
        sentences.append(f"It {verb} {word} {clauses}.")
    return sentences + list(dict.fromkeys(one.remedy for one in kept if one.remedy))


def _now(look: Look) -> str:
    if look.broken:
        return f"Round {look.round} has just ended: {look.broken}. The operator is about to open the next."
    if look.trains:
        since, yet = length(look.formed_since) or "some time", ""
        if look.finishing:
            subject = round_of(look.round, len(look.status.rendezvous.participants))
            return f"{subject.capitalize()} has ended in success."
        if look.cut_off:
            return f"Round {look.round} stands {_size(look)}; it formed {since} ago, and may take no steps."
        if look.starts:
            yet = ", and its training processes start: not all are connected yet, and none has reported a step"
        return f"Round {look.round} {'starts' if yet else 'trains'} {_size(look)}; it formed {since} ago{yet}."
    if look.spec.suspend:
        return ""
    why = f" ({look.status.rendezvous.reason})" if look.status.rendezvous.reason else ""
    if look.is_blind:
        return f"Round {look.round} is forming for {length(look.changed_since)}{why}."
    has = "has" if 1 in (len(look.joined), look.wanted) else "have"
    joined = f"{len(look.joined)} of {plural(look.wanted, 'worker')} {has} joined"
    return f"Round {look.round} is forming for {length(look.changed_since)}{why}: {joined}."


def _size(look: Look) -> str:
    agreed = look.status.rendezvous
    members = {member.index for member in agreed.participants}
    gone = set() if look.is_blind else members & {worker.index for worker in look.missing}
    size = len(members - gone)
    finished = len(members & look.finished)
    text = f"with {size} of {plural(look.spec.replicas, 'worker')}"
    if look.is_full:
        text = f"at full size, with {plural(size, 'worker')}"
    return text + (f", of which {finished} {'has' if finished == 1 else 'have'} finished" if finished else "")


def _follows(look: Look, found: tuple[Cause, ...]) -> str:
    if any(one.covers for one in found):
        return ""
    if look.is_blind:
        return f"You may not see its {listed(look.scene.hidden)}, so nothing can be said of its workers."
    return " ".join(part for part in (_no_spare(look), _spares(look, found), _next(look, found)) if part)


def _no_spare(look: Look) -> str:
    return "No spare is ready to take a place." if look.spec.spare_replicas and look.missing and not look.spares else ""


def _spares(look: Look, found: tuple[Cause, ...]) -> str:
    """The missing spares and the reasons, with the remedies not mentioned yet."""
    absent = absent_spares(look)
    if not absent:
        return ""
    missing = "A spare is" if sum(len(one.workers) for one in absent) == 1 else "Spares are"
    sentences = "; and ".join(one.sentence for one in absent)
    known = {"", *(one.remedy for one in found)}
    remedies = dict.fromkeys(one.remedy for one in absent if one.remedy not in known)
    return " ".join([f"{missing} missing: {sentences}.", *remedies])


def _next(look: Look, found: tuple[Cause, ...]) -> str:
    if look.newcomers:
        return _next_round(look)
    if look.is_formed:
        return "" if look.is_full or not look.missing else "The others train on until more have joined."
    if len(look.joined) < look.least:
        return f"It trains when at least {look.least} {'has' if look.least == 1 else 'have'} joined."
    return f"It goes on with {len(look.joined)} of {look.wanted} {_when(look, found)}."


def _next_round(look: Look) -> str:
    newcomers = [worker.index for worker in look.newcomers]
    wait = "has joined and waits" if len(newcomers) == 1 else "have joined and wait"
    subject = f"{names(newcomers).capitalize()} {wait} for the next round, which"
    if look.awaited_size:
        return f"{subject} needs {look.awaited_size} workers: spec.sizes allows none between."
    return f"{subject} is opened {_left(look, look.newcomers, 1)}."


def _when(look: Look, found: tuple[Cause, ...]) -> str:
    """When a round forms, once enough workers have joined."""
    stuck = {index for one in found if one.stuck for index in one.workers}
    coming = [worker for worker in look.missing if worker.index not in stuck]
    if not coming:
        return "now, as nobody else is on the way"
    if look.finishing:
        return "once each container that goes on has come to its next torchrun, or has ended"
    if any(worker.is_member and worker.pod is not None for worker in coming):
        return "once the members of the last round have joined or count as lost"
    return _left(look, look.joined, look.least)


def _left(look: Look, joined: tuple[WorkerView, ...], least: int) -> str:
    """When the last call ends. It runs from the join of the worker that completed the minimum. The API server does not
    record the time of a request if a sidecar writes its whole record in one request."""
    times = sorted(worker.asked_at for worker in joined if worker.asked_at)
    if len(times) < least:
        return f"at the latest {look.last_call:g} s after enough have joined"
    opened = look.scene.now - timedelta(seconds=look.changed_since or 0.0)
    passed = seconds_between(max(times[least - 1], opened), look.scene.now) or 0.0
    left = look.last_call - passed
    return f"in {length(left)} at the latest" if left > 0 else "at any moment"
