# SPDX-License-Identifier: Apache-2.0
"""What the commands show, as parts that rich prints: each takes what was read and asks nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from elasticjob.api import NodeFailures
from elasticjob_cli.output.console import table
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.members import Member, members_of
from elasticjob_cli.reading.rounds import Goodput, Round, goodput, rounds_of
from elasticjob_cli.reading.times import age, length, seconds_between
from elasticjob_cli.reading.words import plural
from elasticjob_cli.why.answer import Answer, answer

COLOURS = {"Running": "green", "Complete": "green", "Failed": "red", "Forming": "yellow", "Pending": "yellow"}
MEASURED = (">ROUND", ">WORKERS", "FORMED", ">AFTER", ">LASTED", ">STARTING")


def status_view(look: Look, rates: Mapping[str, float]) -> list[RenderableType]:
    """All of `status`; `rates`: steps a second, by pod."""
    rounds, reply = rounds_of(look), answer(look)
    members = members_of(look, rates)
    parts: list[RenderableType] = [_headline(look)]
    if not reply.full or reply.findings:
        parts.append(Text(reply.paragraph, style="" if look.status.phase == "Complete" else "yellow"))
    if members:
        parts += [Text(""), _members(members)]
    if look.status.node_failures:
        parts += [Text(""), _nodes(look.status.node_failures)]
    if rounds:
        parts += [Text(""), rounds_view(rounds)]
    if found := goodput(look, rounds):
        parts += [Text(""), goodput_view(found)]
    return parts


def status_json(look: Look, rates: Mapping[str, float]) -> dict[str, Any]:
    rounds, reply = rounds_of(look), answer(look)
    found = goodput(look, rounds)
    agreed = look.status.rendezvous
    return _head_json(look) | {
        "roundPhase": str(agreed.phase),
        "stage": agreed.stage,
        "waiting": agreed.waiting,
        "replicas": look.spec.replicas,
        "minReplicas": look.spec.min_replicas,
        "spareReplicas": look.spec.spare_replicas,
        "spares": look.status.spares,
        "restarts": look.status.restarts,
        "maxRestarts": look.spec.max_restarts,
        "activeSeconds": round(look.active_for),
        "activeDeadlineSeconds": look.spec.active_deadline_seconds,
        "progress": look.status.progress.dump() if look.status.progress else None,
        "members": [member.as_json() for member in members_of(look, rates)],
        "missing": [worker.index for worker in look.missing],
        "nodeFailures": [one.dump() for one in look.status.node_failures],
        "rounds": [one.as_json() for one in rounds],
        "goodput": found.as_json() if found else None,
        "why": reply.as_json(),
    }


def history_view(look: Look) -> list[RenderableType]:
    rounds = rounds_of(look)
    counted = f"{plural(look.status.restarts, 'failure')} counted against maxRestarts {look.spec.max_restarts}."
    if look.status.restarts > look.spec.max_restarts and look.has_ended:  # no round was formed after it
        counted += f" The last of them ended the job: {look.status.rendezvous.reason}."
    if not rounds:
        return [Text(f"{look.name} has formed no round yet. {counted}")]
    rows = [
        (
            *_measured(one),
            "yes" if one.counted else "no",
            one.cause,
            one.reason,
            one.why,
        )
        for one in rounds
    ]
    columns = [*MEASURED, "COUNTED", "CAUSE", "WHY", "COUNTED OR NOT, AS"]
    parts: list[RenderableType] = [table(columns, rows), Text(""), Text(counted)]
    if rounds[0].number > 1:
        parts.append(
            Text(f"A status keeps the last five rounds: nothing is known of those before round {rounds[0].number}.")
        )
    if found := goodput(look, rounds):
        parts.append(goodput_view(found))
    return parts


def history_json(look: Look) -> dict[str, Any]:
    rounds = rounds_of(look)
    found = goodput(look, rounds)
    return {
        "name": look.name,
        "namespace": look.namespace,
        "restarts": look.status.restarts,
        "maxRestarts": look.spec.max_restarts,
        "rounds": [one.as_json() for one in rounds],
        "goodput": found.as_json() if found else None,
    }


def why_view(reply: Answer) -> list[RenderableType]:
    return [Text(f"{reply.job}: {reply.paragraph}")]


def list_view(looks: Sequence[Look], *, everywhere: bool) -> list[RenderableType]:
    rows = [
        (
            *((look.namespace,) if everywhere else ()),
            look.name,
            look.status.phase,
            look.status.reason,
            look.status.rendezvous.round,
            f"{look.status.rendezvous.world_size}/{look.spec.replicas}",
            look.status.progress.summary if look.status.progress else None,
            f"{look.status.restarts}/{look.spec.max_restarts}",
            age(seconds_between(look.created, look.scene.now)),
        )
        for look in looks
    ]
    columns = ["NAME", "PHASE", "REASON", ">ROUND", ">WORKERS", "STEP", ">RESTARTS", "AGE"]
    return [table([*(["NAMESPACE"] if everywhere else []), *columns], rows)]


def list_json(look: Look) -> dict[str, Any]:
    return _head_json(look) | {
        "replicas": look.spec.replicas,
        "restarts": look.status.restarts,
    }


def rounds_view(rounds: Sequence[Round]) -> RenderableType:
    rows = [(*_measured(one), one.reason) for one in rounds]
    return table([*MEASURED, "WHY"], rows)


def _measured(one: Round) -> tuple[object, ...]:
    """In the columns MEASURED."""
    times = length(one.formed_after), length(one.lasted), length(one.starting)
    return one.number, one.size, _clock(one), *times


def goodput_view(found: Goodput) -> RenderableType:
    since = "its start" if found.whole else "the oldest round that its status keeps"
    share = "" if found.share is None else f" ({100 * found.share:.1f} %)"
    starting = f", started processes for {length(found.starting)}" if found.starting else ""
    starting += f", waited for containers after success for {length(found.finishing)}" if found.finishing else ""
    lost = f"lost {length(found.lost)} between rounds"
    return Text(f"Since {since} it trained for {length(found.trained)}{share}{starting} and {lost}.")


def _nodes(failures: Sequence[NodeFailures]) -> RenderableType:
    """On which nodes workers have failed, the last one first."""
    rows = [(one.node, one.failures, one.pod, one.avoided_until) for one in reversed(failures)]
    return table(["NODE", ">FAILURES", "LAST", "AVOIDED UNTIL"], rows)


def _headline(look: Look) -> Text:
    agreed, spec = look.status.rendezvous, look.spec
    line = Text.assemble((look.name, "bold"), "  ", (look.status.phase, COLOURS.get(look.status.phase, "")))
    line.append(f"  round {look.round} {str(agreed.phase).lower()}")
    size = len(agreed.participants) if look.trains or look.has_ended else len(look.joined)
    line.append(f", {size} of {plural(spec.replicas, 'worker')} (at least {spec.min_replicas})")
    if agreed.stage > 1:
        line.append(f", stage {agreed.stage}")
    if spec.spare_replicas:
        line.append(f", {len(look.spares)} of {plural(spec.spare_replicas, 'spare')} ready")
    line.append(f", restarts {look.status.restarts} of {spec.max_restarts}")
    if spec.active_deadline_seconds:
        line.append(f", active for {length(look.active_for)} of {length(spec.active_deadline_seconds)}")
    if look.status.progress and look.status.progress.summary:
        line.append(f", step {look.status.progress.summary}")
    return line


def _members(members: Sequence[Member]) -> RenderableType:
    told = any(one.waits is not None for one in members)
    rows = [
        (
            "spare" if one.spare else one.rank,
            one.worker,
            one.pod,
            one.node,
            one.step,
            None if one.rate is None else f"{one.rate:.2f}/s",
            *((None if one.waits is None else f"{one.waits:.0%}",) if told else ()),
            age(one.seconds),
            one.state,
        )
        for one in members
    ]
    waits = [">WAITS"] if told else []
    return table([">RANK", ">WORKER", "POD", "NODE", ">STEP", ">RATE", *waits, "AGE", "STATE"], rows)


def _clock(one: Round) -> str:
    return one.formed.astimezone().strftime("%Y-%m-%d %H:%M:%S") if one.formed else ""


def _head_json(look: Look) -> dict[str, Any]:
    """What the list and the status of one job begin with."""
    return {
        "name": look.name,
        "namespace": look.namespace,
        "phase": look.status.phase,
        "reason": look.status.reason,
        "round": look.status.rendezvous.round,
        "worldSize": look.status.rendezvous.world_size,
    }
