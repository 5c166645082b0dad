# SPDX-License-Identifier: Apache-2.0
"""What a sidecar owes its trainer, checked after each of its inputs."""

from elasticjob.api import RendezvousPhase, RequestType
from elasticjob_sidecar.membership.model import Handed
from elasticjob_sidecar.membership.modes import Mode
from model.composed_pods import TRAINING, Pod, perceives_change
from model.search import Violation


def check_given(pod: Pod, handed: Handed) -> Pod:
    """A round was handed out: it is the formed one, as its members were agreed, and nobody else's in this pod."""
    assert pod.output is not None
    job, me = pod.output.standing.job, pod.output.standing.me
    if job is None or job.phase is not RendezvousPhase.FORMED or handed.round != job.round:
        raise Violation(f"round {handed.round} is handed out and is not formed")
    if (handed.members, handed.store) != (job.participants, job.store) or handed.members[handed.rank] != me:
        raise Violation(f"round {handed.round} is handed out otherwise than it was formed: {handed}")
    round, trainer = pod.given
    if handed.round < round or (handed.round == round and handed.trainer != trainer):
        raise Violation(f"round {handed.round} is handed to trainer {handed.trainer}, after {round} to {trainer}")
    return pod._replace(given=(handed.round, handed.trainer))


def check_success(before: Pod, pod: Pod) -> None:
    """A record that asks `Finish` does so until a newer trainer joins, or leaves as it was told to, whatever becomes of
    the sidecar."""
    was, asks = (one.output.request if one.output else None for one in (before, pod))
    if was is None or was.type is not RequestType.FINISH:
        return
    told_to = pod.output is not None and pod.output.standing.leaving
    if asks is None or asks.type not in (RequestType.FINISH, RequestType.JOIN, *[RequestType.LEAVE] * told_to):
        raise Violation(
            f"worker {pod.index} has finished, and its record asks {asks.type if asks else 'nothing'} instead"
        )


def check_place(pod: Pod) -> None:
    """The n-th torchrun of each container is of stage n."""
    sidecar, trainer = pod.sidecar, pod.trainer
    if sidecar is not None and trainer is not None and trainer.connected and sidecar._torchruns.stage != trainer.place:
        raise Violation(
            f"trainer {trainer.name} is number {trainer.place} of its container, in stage {sidecar._torchruns.stage}"
        )


def check_telling(pod: Pod) -> None:
    """As far as its sidecar knows, a trainer is told of a change exactly when its round has ended or it must leave."""
    output, trainer = pod.output, pod.trainer
    if output is None or trainer is None or trainer.state != TRAINING or not trainer.connected:
        return
    now, job = output.standing, output.standing.job
    if job is None:
        return
    over = job.round > trainer.used or now.me in job.leaving
    told = perceives_change(pod)
    if over and not told:
        raise Violation(f"trainer {trainer.name} holds round {trainer.used} and is not told that it is over")
    holds = now.mode is Mode.HANDED and now.handed and now.handed.round == trainer.used == job.round
    if told and holds and not over:
        raise Violation(f"trainer {trainer.name} is told that round {trainer.used} is over, and it is not")
