# SPDX-License-Identifier: Apache-2.0
"""Why rounds end and are formed, as a word for programs and a sentence for people (rule 19). No rule reads either."""

from collections.abc import Iterable, Sequence

from elasticjob.members import Member
from elasticjob.rendezvous.losses import Break
from elasticjob.rendezvous.model import Spec, State, Worker
from elasticjob.rendezvous.rank_order import in_words
from elasticjob.terms import RoundCause


def why_told(spec: Spec, state: State, workers: Iterable[Worker], first: Break) -> tuple[str, str]:
    """Why members were told to leave, in a word and in a sentence."""
    if spec.suspend:
        return RoundCause.SUSPENDED, "suspended"
    if spec.replicas < state.replicas:
        return RoundCause.SCALED, f"scaled from {state.replicas} to {spec.replicas}"
    if any(worker.outdated for worker in workers if worker.member in state.leaving):
        return RoundCause.TEMPLATE_CHANGED, "spec.template was changed"
    return first.cause, first.why


def why_reopened(spec: Spec, state: State, newcomers: Sequence[Worker], replaced: Sequence[Worker]) -> tuple[str, str]:
    """Why newcomers are admitted, in a word and in a sentence. `replaced`: the members that they take over from."""
    reason = f"{_workers(newcomers)} joined"
    if replaced:
        cause = RoundCause.DEVICE_UNHEALTHY if all(one.unhealthy for one in replaced) else RoundCause.NODE_DRAINING
        return cause, f"{reason} for {_drained(replaced)}"
    all_are_there = len(state.participants) + len(newcomers) == spec.replicas - len(state.done)
    if all_are_there and spec.replicas > state.replicas > 0:
        return RoundCause.SCALED, f"scaled from {state.replicas} to {spec.replicas}"
    return RoundCause.WORKERS_JOINED, reason


def _drained(replaced: Sequence[Worker]) -> str:
    """The members that others take over from, each with the cause."""
    healthy, unhealthy = ([one for one in replaced if one.unhealthy is ill] for ill in (False, True))
    nodes = "nodes are" if len(healthy) > 1 else "node is"
    devices = "devices are" if len(unhealthy) > 1 else "device is"
    parts = ((healthy, f"whose {nodes} draining"), (unhealthy, f"whose {devices} unhealthy"))
    return ", and ".join(f"{_workers(those)}, {why}" for those, why in parts if those)


def why_restarted(spec: Spec) -> tuple[str, str]:
    """Why the same group restarts, in a word and in a sentence."""
    return RoundCause.RESTARTED, f"a restart was asked for at {spec.restarted_at}"


def _workers(those: Sequence[Worker]) -> str:
    return f"worker{'s' * (len(those) > 1)} {', '.join(str(worker.index) for worker in those)}"


def of_ranks(spec: Spec, state: State, members: Sequence[Worker]) -> str:
    """What is new about the ranks in the round that is formed of `members`, as a clause."""
    if spec.rank_order:
        return in_words(spec, members)
    return _of_spares(state, members) if spec.spares else ""


def _of_spares(state: State, members: Sequence[Worker]) -> str:
    """Which spares take over ranks of other workers. A spare is a worker that had joined before the last round
    ended."""
    known: set[Member | None] = set(state.participants)
    changed = [
        (one.index, rank)
        for rank, (one, before) in enumerate(zip(members, state.participants, strict=False))
        if one.member not in known and one.index != before.index
    ]
    if not changed:
        return ""
    indices, ranks = (", ".join(map(str, numbers)) for numbers in zip(*changed, strict=True))
    many = len(changed) > 1
    return f"; spare{'s' * many} {indices} take{'s' * (not many)} rank{'s' * many} {ranks}"
