# SPDX-License-Identifier: Apache-2.0
"""What a change of a job's size and a restart lead to, in sentences."""

from elasticjob.api import MAX_REPLICAS, ElasticJobSpec
from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.words import names, plural

FOLLOWS = "What follows:"
ASKED = "spec.restartedAt is set."


def check(name: str, spec: ElasticJobSpec, replicas: int) -> None:
    """Raises CliError if the API server would refuse the number. The error names the bound."""
    largest = spec.max_replicas or MAX_REPLICAS
    if replicas < spec.min_replicas:
        raise CliError(
            f"{replicas} is below minReplicas {spec.min_replicas} of {name}: change spec.minReplicas first, or suspend "
            "the job to stop all of its workers",
            Exit.WRONG_COMMAND_LINE,
        )
    if replicas > largest:
        bound = f"maxReplicas {largest} of {name}: change spec.maxReplicas first" if spec.max_replicas else f"{largest}"
        raise CliError(f"{replicas} is above {bound}", Exit.WRONG_COMMAND_LINE)
    if spec.sizes and replicas not in spec.sizes.up_to(MAX_REPLICAS):
        sizes = [size for size in spec.sizes.up_to(largest) if size >= spec.min_replicas]
        below, above = [size for size in sizes if size < replicas], [size for size in sizes if size > replicas]
        nearest = " or ".join(map(str, (*below[-1:], *above[:1])))
        sentence = f"{replicas} is none of the sizes that spec.sizes of {name} allows: take {nearest}"
        raise CliError(sentence, Exit.WRONG_COMMAND_LINE)


def plan(look: Look, replicas: int) -> str:
    """What was changed, and what follows by the rules of docs/protocol.md. `look`: the job before the change."""
    before, timing = look.spec.replicas, look.spec.rendezvous
    change = f"spec.replicas of {look.name} is {replicas} now, and was {before}."
    if replicas == before:
        return f"{look.name} has {before} workers already: nothing changes."
    if look.spec.suspend:
        return f"{change} It is suspended: that counts when it goes on."
    if look.status.rendezvous.outcome is not None:
        return f"{change} Its rendezvous is closed, so no other round will form."
    if replicas > before:
        return f"{change} {FOLLOWS} {_grows(look, replicas)}"
    leaving, wanted = leavers(look, replicas), replicas - len(look.finished)
    leave = f"{names(leaving)} {'are' if len(leaving) > 1 else 'is'} told to leave" if leaving else "nobody leaves"
    members = [worker for worker in leaving if worker in {one.index for one in look.members}]
    if not (look.is_formed and members):
        return f"{change} {FOLLOWS} {leave}; the round is not broken."
    if wanted < 1:
        return f"{change} {FOLLOWS} {leave}, and {look.name} is complete: nobody else is wanted, as {_finished(look)}."
    return (
        f"{change} {FOLLOWS} {leave}, round {look.round} ends, and one of {plural(wanted, 'worker')} follows. Scripts "
        f"that call wants_restart() may save before, for up to {timing.save_seconds} s."
    )


def forms_no_round(look: Look, replicas: int) -> bool:
    """Whether no round of that size follows as long as nothing fails. A round that is about to end breaks only if one
    of its members has to leave."""
    wanted = replicas - len(look.finished)
    return wanted < 1 or (look.is_about_to_end and look.unfinished < wanted)


def _finished(look: Look) -> str:
    return f"{names(sorted(look.finished))} {'have' if len(look.finished) > 1 else 'has'} finished"


def _grows(look: Look, replicas: int) -> str:
    pods = replicas - look.spec.replicas
    made = f"{pods} pod{'s are' if pods > 1 else ' is'} made"
    spares = [worker.index for worker in look.spares][:pods]
    if spares:
        takes = (
            "takes a place as the spare that it is" if len(spares) == 1 else "take places as the spares that they are"
        )
        made = f"{names(spares)} {takes}, and {made}"
    if not look.is_formed:
        return f"{made}; round {look.round}, which is forming, waits for {'them' if pods > 1 else 'it'} too."
    if look.is_about_to_end:
        who, part = ("them", "they take part") if pods > 1 else ("it", "it takes part")
        return f"{made}; no round is formed for {who}, as {_finished(look)}: {part} if round {look.round} breaks."
    joined = f"trains on until {'they have' if pods > 1 else 'it has'} joined, and is then replaced"
    follows = "is replaced at once" if len(spares) == pods else joined
    saved = f"Scripts that call wants_restart() may save before, for up to {look.spec.rendezvous.save_seconds} s."
    return f"{made}; round {look.round} {follows} by one of {plural(replicas - len(look.finished), 'worker')}. {saved}"


def leavers(look: Look, replicas: int) -> list[int]:
    """The indices without room in `replicas` or among the spares: newcomers first, then members from the highest rank
    down. A member never becomes a spare."""
    members = [worker.index for worker in look.members if worker.index not in look.finished]
    others = [index for index in look.workers if index not in (*members, *look.finished)]
    others.sort(key=lambda index: (not look.workers[index].joined, index))
    room = max(0, replicas - len(look.finished))
    kept = max(0, room - len(members)) + look.spec.spare_replicas
    return sorted([*members[room:], *others[kept:]])


def restart_plan(look: Look) -> str:
    """The message once the restart is requested. `look`: the job before that. Raises CliError if no restart is
    possible."""
    if look.spec.suspend:
        return f"{ASKED} {look.name} is suspended: all its processes are new anyway when it goes on."
    if look.is_about_to_end:
        done = sorted(look.finished)
        have = "have" if len(done) > 1 else "has"
        raise CliError(
            f"{names(done)} of {look.name} {have} finished, so round {look.round} trains on to its end: no restart can "
            "be done",
            Exit.JOB_ENDED,
        )
    if not look.is_formed:
        return f"{ASKED} Round {look.round} of {look.name} is forming: all its processes are new anyway."
    size, seconds = look.status.rendezvous.world_size, look.spec.rendezvous.save_seconds
    return (
        f"{ASKED} What follows: round {look.round} of {look.name} ends, and the training processes of its "
        f"{plural(size, 'worker')} start "
        f"anew in the pods that they have. Scripts that call wants_restart() may save before, for up to {seconds} s."
    )
