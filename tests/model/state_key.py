# SPDX-License-Identifier: Apache-2.0
"""All of an agreed state but its texts, in plain values; times are ages, no older than the rules can tell apart."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from elasticjob.rendezvous import Clocks, Failures, Matched, Member, Spec, State, Worker
from elasticjob.rendezvous.backoff import LONGEST_SECONDS, delay_of
from elasticjob.rendezvous.limits import AGAIN_SECONDS, ALONE_SECONDS
from elasticjob.rendezvous.model import Finishing, Pinged
from elasticjob.terms import RendezvousPhase


def must_know(kind: Any, names: str) -> None:
    """A field that a key leaves out by mistake would hide states: each is listed where keys are made, but for those
    that follow from others."""
    found = set(getattr(kind, "_fields", ())) or {field.name for field in fields(kind) if field.init}
    known = set(names.split())
    if found != known:
        raise TypeError(f"{kind.__name__} has other fields than the models know: {sorted(found ^ known)}")


must_know(
    State,
    "clocks round phase participants replicas restarted_at leaving finished finishing members_ended stage scripts "
    "replacements restarts failure failure_of failure_kind matched replaced planned intact live restart_round waiting "
    "spares ping pinged store outcome reason cause",
)
must_know(
    Clocks,
    "opened formed min_reached all_running all_spoke newcomer settled beats pings leaving invalid failures finishing",
)
must_know(Pinged, "number since counting acked lived alone unheard")
must_know(Failures, "in_a_row before_any_round since why")
must_know(Finishing, "crashes since")
must_know(
    Worker,
    "index replacement pod deleting crashes id address request heartbeat suspects ack detail kind invalid "
    "disrupted rejected outdated draining unhealthy unready hung cut_off live_in matched topology",
)
must_know(
    Spec,
    "replicas spares min_replicas max_restarts suspend restarted_at deadline last_call join_timeout start_timeout "
    "rejoin worker_lost heartbeat_timeout restart_reset finish starts_torchrun sizes rank_order",
)


# No record is invalid in the models: to the rules such a worker is one that has not come, and then one that is lost.
# What `State.replicas` was makes a difference to texts only, and of the times of restarts it matters whether the last
# one was answered. No Join names its script, so `State.scripts` is empty. In the composed model no process lives
# through changes: `State.live` is empty, `State.intact` is `State.planned`, and `State.restart_round` makes no
# difference. No failure tells of its cause: which worker's is pending makes a difference to texts only.


def state_key(spec: Spec, state: State) -> tuple[Any, ...]:
    """For the composed model, where it is always the moment 0, nobody's heart beats, and all who are asked answer."""
    return (_state(state), _clocks(spec, state))


def _state(state: State) -> tuple[Any, ...]:
    return (
        state.round,
        state.phase._value_,
        _ids(state.participants),
        _ids(state.leaving),
        _ids(state.finished),
        _ids(state.finishing),
        state.members_ended,
        state.stage,
        _ids(state.replaced),
        tuple(sorted(state.replacements.items())),
        state.restarts,
        state.store,
        state.outcome and state.outcome._value_,
        bool(state.failure),
        matched_key(state.matched),
        state.planned,
        bool(state.reason),
    )


def asks_anew(spec: Spec, state: State) -> bool:
    """Whether people have asked for new processes since the last round was formed."""
    return spec.restarted_at not in ("", state.restarted_at)


def matched_key(matched: Matched | None) -> tuple[Any, ...]:
    """But for its text."""
    return () if matched is None else (matched.rule, matched.action._value_)


def _ids(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(member.id for member in members)  # an id holds its index


def failures_key(spec: Spec, clocks: Clocks, now: float) -> tuple[tuple[float, ...], ...]:
    """What matters of pods that failed by themselves, by index."""
    # a spare that waits clears them, some time after the last
    judged = 2 * LONGEST_SECONDS if spec.spares else 0.0
    return tuple(
        (
            index,
            delay_of(known),
            min(known.before_any_round, spec.max_restarts + 1),
            min(now - known.since, max(judged, delay_of(known))),
        )
        for index, known in sorted(clocks.failures.items())
    )


def finishing_key(spec: Spec, known: Finishing, crashes: int, now: float) -> tuple[float, ...]:
    """What matters of a container that goes on after torchrun's success; it has been started again `crashes` times."""
    return (crashes, -1.0 if known.since is None else min(now - known.since, spec.finish))


def stood_key(spec: Spec, state: State, now: float) -> float:
    """For how long the formed round has stood, as far as anything waits for that."""
    if state.phase is not RendezvousPhase.FORMED or not (state.restarts or state.clocks.failures):
        return 0.0
    waits = (spec.restart_reset * (state.restarts > 0), LONGEST_SECONDS * bool(state.clocks.failures))
    return min(now - state.clocks.formed, max(waits))


def _clocks(spec: Spec, state: State) -> tuple[Any, ...]:
    clocks = state.clocks
    forming = state.phase is RendezvousPhase.FORMING
    return (
        _age(clocks.opened, spec.rejoin) if forming else 0.0,
        _age(clocks.min_reached, spec.last_call),
        _age(clocks.all_running, spec.start_timeout),
        _age(clocks.all_spoke, spec.join_timeout),
        _age(clocks.newcomer, spec.last_call),
        stood_key(spec, state, 0.0),
        *(_age(since, spec.rejoin) for since in clocks.leaving.values()),
        *((*pod_key, _age(since, spec.patience)) for pod_key, since in sorted(clocks.invalid.items())),
        failures_key(spec, clocks, 0.0),
        *((member.id, finishing_key(spec, known, known.crashes, 0.0)) for member, known in clocks.finishing.items()),
        clocks.pings is None,
        *((member.id, ping_key(spec, clocks, pinged, 0.0)) for member, pinged in (clocks.pings or {}).items()),
    )


def ping_key(spec: Spec, clocks: Clocks, pinged: Pinged, now: float) -> tuple[float, ...]:
    """What matters of a question, but for its number."""
    most = (AGAIN_SECONDS, ALONE_SECONDS + spec.worker_lost, AGAIN_SECONDS, spec.rejoin)
    moments = (pinged.since, pinged.counting, pinged.acked, pinged.lived)
    ages = (-1.0 if one is None else min(now - one, limit) for one, limit in zip(moments, most, strict=True))
    return (*ages, pinged.lived is not None and pinged.lived >= clocks.opened, pinged.alone, pinged.unheard)


def _age(since: float | None, most: float) -> float:
    return -1.0 if since is None else min(-since, most)
