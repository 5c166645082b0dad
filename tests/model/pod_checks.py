"""What a sidecar owes its trainer, checked after each of its inputs."""

from elasticjob.api import RendezvousPhase
from elasticjob_sidecar.membership.model import Handed, Mode
from model.pods import TRAINING, Pod, perceives_change
from model.search import Finding


def check_given(pod: Pod, handed: Handed) -> Pod:
    """A round was handed out: it is the formed one, as its members were agreed, and nobody else's in this pod."""
    assert pod.sidecar is not None
    job, me = pod.sidecar.job, pod.sidecar.me
    if job is None or job.phase is not RendezvousPhase.FORMED or handed.round != job.round:
        raise Finding(f"round {handed.round} is handed out and is not formed")
    if (handed.members, handed.store) != (job.participants, job.store) or handed.members[handed.rank] != me:
        raise Finding(f"round {handed.round} is handed out otherwise than it was formed: {handed}")
    round, trainer = pod.given
    if handed.round < round or (handed.round == round and handed.trainer != trainer):
        raise Finding(f"round {handed.round} is handed to trainer {handed.trainer}, after {round} to {trainer}")
    return pod._replace(given=(handed.round, handed.trainer))


def check_telling(pod: Pod) -> None:
    """As far as its sidecar knows, a trainer is told of a change exactly when its round has ended or it must leave."""
    sidecar, trainer = pod.sidecar, pod.trainer
    if sidecar is None or trainer is None or trainer.state != TRAINING or not trainer.connected or sidecar.job is None:
        return
    job = sidecar.job
    over = job.round > trainer.used or sidecar.me in job.leaving
    told = perceives_change(pod)
    if over and not told:
        raise Finding(f"trainer {trainer.name} holds round {trainer.used} and is not told that it is over")
    holds = sidecar.mode is Mode.HANDED and sidecar.handed and sidecar.handed.round == trainer.used == job.round
    if told and holds and not over:
        raise Finding(f"trainer {trainer.name} is told that round {trainer.used} is over, and it is not")
