"""All of an agreed state but its texts, in plain values; times are ages, no older than the rules can tell apart."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from elasticjob.rendezvous import Clocks, Member, Spec, State, Worker
from elasticjob.terms import RendezvousPhase


def must_know(kind: Any, names: str) -> None:
    """A field that a key leaves out by mistake would hide worlds: each is listed where keys are made."""
    found, known = {field.name for field in fields(kind)}, set(names.split())
    if found != known:
        raise TypeError(f"{kind.__name__} has other fields than the models know: {sorted(found ^ known)}")


must_know(
    State,
    "clocks round phase participants leaving finished replacements restarts failure given_up planned "
    "waiting store outcome reason",
)
must_know(Clocks, "opened formed min_reached all_running newcomer beats leaving invalid")
must_know(Worker, "index replacement pod deleting crashes id address request heartbeat detail invalid")
must_know(Spec, "replicas min_replicas max_restarts suspend last_call join_timeout rejoin worker_lost restart_reset")


# No record is invalid in the models: to the rules such a worker is one that has not come, and then one that is lost.


def state_key(spec: Spec, state: State) -> tuple[Any, ...]:
    """For the composed model, where it is always the moment 0 and nobody's heart beats."""
    return (_state(state), _clocks(spec, state))


def _state(state: State) -> tuple[Any, ...]:
    return (
        state.round,
        state.phase._value_,
        _ids(state.participants),
        _ids(state.leaving),
        _ids(state.finished),
        _ids(state.given_up),
        tuple(sorted(state.replacements.items())),
        state.restarts,
        state.store,
        state.outcome and state.outcome._value_,
        bool(state.failure),
        state.planned,
        bool(state.reason),
    )


def _ids(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(member.id for member in members)  # an id holds its index


def _clocks(spec: Spec, state: State) -> tuple[float, ...]:
    clocks = state.clocks
    forming = state.phase is RendezvousPhase.FORMING
    return (
        _age(clocks.opened, spec.rejoin) if forming else 0.0,
        _age(clocks.min_reached, spec.last_call),
        _age(clocks.all_running, spec.join_timeout),
        _age(clocks.newcomer, spec.last_call),
        _age(clocks.formed, spec.restart_reset) if state.restarts and not forming else 0.0,
        *(_age(since, spec.rejoin) for since in clocks.leaving.values()),
    )


def _age(since: float | None, most: float) -> float:
    return -1.0 if since is None else min(-since, most)
