# SPDX-License-Identifier: Apache-2.0
"""The output of the commands for people, as texts and tables. Each function takes what was read and requests
nothing."""

from collections.abc import Mapping, Sequence

from elasticjob.api import NodeFailures
from elasticjob_cli.output.tables import Paragraph, Part, Span, table
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.members import MemberRow, members_of
from elasticjob_cli.reading.rounds import FormedRound, Goodput, goodput, rounds_of
from elasticjob_cli.reading.times import age, length, seconds_between
from elasticjob_cli.reading.words import plural
from elasticjob_cli.why.answer import Explanation, answer

COLOURS = {"Running": "green", "Complete": "green", "Failed": "red", "Forming": "yellow", "Pending": "yellow"}
MEASURED = (">ROUND", ">WORKERS", "FORMED", ">AFTER", ">LASTED", ">STARTING")


def status_view(look: Look, rates: Mapping[str, float], *, wide: bool = False) -> list[Part]:
    """The output of `status`. `rates`: steps a second, by pod. `wide`: includes the pods' addresses."""
    rounds, reply = rounds_of(look), answer(look)
    members = members_of(look, rates)
    parts: list[Part] = [_headline(look)]
    if not reply.full or reply.causes:
        parts.append(Paragraph.of(reply.paragraph, style="" if look.status.phase == "Complete" else "yellow"))
    if members:
        parts += [Paragraph.of(""), _members(members, _addresses(look) if wide else None)]
    if look.status.node_failures:
        parts += [Paragraph.of(""), _nodes(look.status.node_failures)]
    if rounds:
        parts += [Paragraph.of(""), rounds_view(rounds)]
    if found := goodput(look, rounds):
        parts += [Paragraph.of(""), goodput_view(found)]
    return parts


def history_view(look: Look) -> list[Part]:
    rounds = rounds_of(look)
    counted = f"{plural(look.status.restarts, 'failure')} counted against maxRestarts {look.spec.max_restarts}."
    if look.status.restarts > look.spec.max_restarts and look.has_ended:  # no round formed after it
        counted += f" The last of them ended the job: {look.status.rendezvous.reason}."
    if not rounds:
        return [Paragraph.of(f"{look.name} has formed no round yet. {counted}")]
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
    parts: list[Part] = [table(columns, rows), Paragraph.of(""), Paragraph.of(counted)]
    if rounds[0].number > 1:
        parts.append(
            Paragraph.of(
                f"A status keeps the last five rounds: nothing is known of those before round {rounds[0].number}."
            )
        )
    if found := goodput(look, rounds):
        parts.append(goodput_view(found))
    return parts


def why_view(reply: Explanation) -> list[Part]:
    return [Paragraph.of(f"{reply.job}: {reply.paragraph}")]


def list_view(looks: Sequence[Look], *, everywhere: bool, wide: bool = False) -> list[Part]:
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
            *((look.spec.min_replicas, look.spec.max_replicas, look.spec.spare_replicas, _image(look)) if wide else ()),
        )
        for look in looks
    ]
    columns = ["NAME", "PHASE", "REASON", ">ROUND", ">WORKERS", "STEP", ">RESTARTS", "AGE"]
    more = [">MIN", ">MAX", ">SPARES", "IMAGE"] if wide else []
    return [table([*(["NAMESPACE"] if everywhere else []), *columns, *more], rows)]


def _image(look: Look) -> str | None:
    containers = look.spec.template.get("spec", {}).get("containers") or ()
    return next((one.get("image") for one in containers if one.get("name") == look.spec.trainer_container), None)


def _addresses(look: Look) -> dict[str, str | None]:
    """The pods' addresses, by pod."""
    return {pod["metadata"]["name"]: pod.get("status", {}).get("podIP") for pod in look.scene.pods}


def rounds_view(rounds: Sequence[FormedRound]) -> Part:
    rows = [(*_measured(one), one.reason) for one in rounds]
    return table([*MEASURED, "WHY"], rows)


def _measured(one: FormedRound) -> tuple[object, ...]:
    """The cells for the columns MEASURED."""
    times = length(one.formed_after), length(one.lasted), length(one.starting)
    return one.number, one.size, _clock(one), *times


def goodput_view(found: Goodput) -> Part:
    since = "its start" if found.whole else "the oldest round that its status keeps"
    share = "" if found.share is None else f" ({100 * found.share:.1f} %)"
    starting = f", started processes for {length(found.starting)}" if found.starting else ""
    starting += f", waited for containers after success for {length(found.finishing)}" if found.finishing else ""
    lost = f"lost {length(found.lost)} between rounds"
    return Paragraph.of(f"Since {since} it trained for {length(found.trained)}{share}{starting} and {lost}.")


def _nodes(failures: Sequence[NodeFailures]) -> Part:
    """The nodes on which workers have failed, the last failure first."""
    rows = [(one.node, one.failures, one.pod, one.avoided_until) for one in reversed(failures)]
    return table(["NODE", ">FAILURES", "LAST", "AVOIDED UNTIL"], rows)


def _headline(look: Look) -> Paragraph:
    agreed, spec = look.status.rendezvous, look.spec
    words = f"  round {look.round} {str(agreed.phase).lower()}"
    size = len(agreed.participants) if look.trains or look.has_ended else len(look.joined)
    words += f", {size} of {plural(spec.replicas, 'worker')} (at least {spec.min_replicas})"
    if agreed.live:
        words += f", {len(agreed.live)} of them live through changes"
    if agreed.stage > 1:
        words += f", stage {agreed.stage}"
    if spec.spare_replicas:
        words += f", {len(look.spares)} of {plural(spec.spare_replicas, 'spare')} ready"
    words += f", restarts {look.status.restarts} of {spec.max_restarts}"
    if spec.active_deadline_seconds:
        words += f", active for {length(look.active_for)} of {length(spec.active_deadline_seconds)}"
    if look.status.progress and look.status.progress.summary:
        words += f", step {look.status.progress.summary}"
    phase = look.status.phase
    return Paragraph((Span(look.name, "bold"), Span("  "), Span(phase, COLOURS.get(phase, "")), Span(words)))


def _members(members: Sequence[MemberRow], addresses: Mapping[str, str | None] | None = None) -> Part:
    """The table of members. `addresses`: those of the pods, None to leave them out."""
    reports_waits = any(one.waits is not None for one in members)
    rows = [
        (
            "spare" if one.spare else one.rank,
            one.worker,
            one.pod,
            one.node,
            *(() if addresses is None else (addresses.get(one.pod),)),
            one.step,
            None if one.rate is None else f"{one.rate:.2f}/s",
            *((None if one.waits is None else f"{one.waits:.0%}",) if reports_waits else ()),
            age(one.seconds),
            one.state,
        )
        for one in members
    ]
    waits = [">WAITS"] if reports_waits else []
    where = [] if addresses is None else ["IP"]
    return table([">RANK", ">WORKER", "POD", "NODE", *where, ">STEP", ">RATE", *waits, "AGE", "STATE"], rows)


def _clock(one: FormedRound) -> str:
    return one.formed.astimezone().strftime("%Y-%m-%d %H:%M:%S") if one.formed else ""
