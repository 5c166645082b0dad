# SPDX-License-Identifier: Apache-2.0
"""What happens in a pod of the composed model.

Time does not exist here: a sidecar's timer that is armed may go off at any moment, and all moments are zero. Pods are
never changed: each function gives another one, in which the sidecar that was touched is a copy.
"""

import sys

from elasticjob.api import Member, RendezvousStatus, RequestCause
from elasticjob.rendezvous import PodState
from elasticjob_sidecar.membership.machine import Membership
from elasticjob_sidecar.membership.model import Answer, Handed, Torchrun
from elasticjob_sidecar.membership.refusal import Refused
from elasticjob_torch.wire import Code
from model.composed_pod_checks import check_given, check_place, check_success, check_telling
from model.composed_pods import DEAD, ENTERING, FAILED, FINISHED, JOINING, TRAINING, Pod, Trainer, copied
from model.search import Violation

NOW = 0.0


def with_sidecar(pod: Pod) -> Pod:
    """A sidecar has started, the first or one after a crash; it has read nothing yet."""
    me = Member(index=pod.index, id=f"{pod.index}-{pod.number}-{pod.lives}")
    trainer = pod.trainer._replace(connected=False) if pod.trainer else None
    sidecar = Membership(me)
    sidecar.recall(pod.output.request if pod.output else None, NOW)  # as it finds it in the pod's record
    started = pod._replace(
        sidecar=sidecar,
        output=sidecar.take(),
        lives=pod.lives + 1,
        read=None,
        lag=0,
        trainer=trainer,
        phase=PodState.RUNNING,
    )
    check_success(pod, started)
    return started


def with_trainer(pod: Pod) -> Pod:
    """The first torchrun of a container starts, opens its stream, and joins."""
    return _begun(pod, copied(pod), place=1)


def with_container(pod: Pod) -> Pod:
    """The kubelet starts the container again."""
    return with_trainer(pod._replace(containers=pod.containers + 1))


def with_next(pod: Pod) -> Pod:
    """A torchrun has ended in success, and the next of the same container starts."""
    sidecar = copied(pod)
    sidecar.detached(sidecar._stream, NOW)
    return _begun(pod, sidecar, place=_trainer(pod).place + 1)


def _begun(pod: Pod, sidecar: Membership, place: int) -> Pod:
    trainer = Trainer(name=chr(97 + pod.starts), place=place)
    sidecar.attached(trainer.name, 0, Torchrun(container=str(pod.containers)))
    return _asked(pod._replace(starts=pod.starts + 1), sidecar, trainer)


def with_status(pod: Pod, number: int, status: RendezvousStatus, lag: int) -> Pod:
    """The sidecar reads the job's status."""
    sidecar = copied(pod)
    sidecar.job_seen(status, NOW)
    return _settled(pod._replace(read=number, lag=lag), sidecar, pod.trainer)


def with_timer(pod: Pod) -> Pod:
    """A timer of the sidecar goes off."""
    sidecar, output = copied(pod), pod.output
    assert output is not None
    assert output.wake_at is not None
    sidecar.tick(output.wake_at)
    return _settled(pod, sidecar, pod.trainer)


def reconnected(pod: Pod) -> Pod:
    """The trainer finds the new sidecar: an open join is asked again, a round not yet in use is given up."""
    trainer = _trainer(pod)._replace(connected=True)
    sidecar = copied(pod)
    stage = trainer.place if trainer.handed else 0  # it was told so with its round
    sidecar.attached(trainer.name, trainer.handed, Torchrun(container=str(pod.containers), stage=stage))
    if trainer.state == JOINING:
        return _asked(pod, sidecar, trainer)
    if trainer.state == ENTERING:
        trainer = trainer._replace(state=TRAINING, used=trainer.handed)
    return _settled(pod, sidecar, trainer)


def asking(pod: Pod, cause: RequestCause) -> Pod:
    """The trainer asks for its next round, or asks again after it was interrupted."""
    trainer = _trainer(pod)
    sidecar = copied(pod)
    sidecar.join_dropped(_ticket(trainer))
    return _asked(pod, sidecar, trainer._replace(state=JOINING, cause=cause))


def asked_again(pod: Pod) -> Pod:
    return asking(pod, _trainer(pod).cause)


def entering(pod: Pod) -> Pod:
    """The trainer takes the round into use; one that has ended meanwhile it passes over."""
    trainer, handed = _trainer(pod), pod.output and pod.output.standing.handed
    sidecar = copied(pod)
    if handed is not None and handed.rank == 0:
        try:
            sidecar.store_posted(trainer.name, trainer.handed, 29500)
        except Refused as refused:
            if refused.code is not Code.ROUND_BROKEN:
                raise Violation(f"rank 0 of round {trainer.handed} may not serve: {refused}") from None
    return _settled(pod, sidecar, trainer._replace(state=TRAINING, used=trainer.handed))


def killed(pod: Pod) -> Pod:
    return pod._replace(trainer=_trainer(pod)._replace(state=DEAD))


def noticed(pod: Pod) -> Pod:
    """The sidecar learns that its trainer was killed."""
    sidecar = copied(pod)
    sidecar.detached(sidecar._stream, NOW)
    return _settled(pod, sidecar, _trainer(pod)._replace(connected=False))


def ending_badly(pod: Pod) -> Pod:
    """The container fails after its torchrun's success."""
    sidecar = copied(pod)
    sidecar.detached(sidecar._stream, NOW)
    return _settled(pod, sidecar, _trainer(pod)._replace(state=DEAD, connected=False))


def failing(pod: Pod) -> Pod:
    """The trainer gives up; its container will be started again."""
    trainer = _trainer(pod)
    sidecar = copied(pod)
    sidecar.leave(trainer.name, RequestCause.TRAINER_LEFT)
    sidecar.detached(sidecar._stream, NOW)
    return _settled(pod, sidecar, trainer._replace(state=DEAD, connected=False))


def finishing(pod: Pod) -> Pod:
    """The trainer's work is done; it says so, and still lives."""
    trainer = _trainer(pod)
    sidecar = copied(pod)
    sidecar.finish(trainer.name, trainer.used)
    return _settled(pod._replace(finished=True), sidecar, trainer._replace(state=FINISHED))


def closing(pod: Pod) -> Pod:
    """The trainer closes the rendezvous for all, and trains on."""
    sidecar = copied(pod)
    sidecar.close(_trainer(pod).name)
    return _settled(pod, sidecar, pod.trainer)


def stopped(pod: Pod, phase: PodState) -> Pod:
    """The trainer is gone, then the sidecar is told to stop."""
    sidecar = copied(pod)
    sidecar.detached(sidecar._stream, NOW)
    sidecar.stop()
    trainer = pod.trainer._replace(state=DEAD, connected=False) if pod.trainer else None
    return _settled(pod._replace(phase=phase, lag=0), sidecar, trainer)


# --- the trainer's answers


def _trainer(pod: Pod) -> Trainer:
    assert pod.trainer is not None
    return pod.trainer


def _ticket(trainer: Trainer) -> str:
    return sys.intern(f"{trainer.name}{trainer.asked}")  # the machine compares tickets by identity


def _asked(pod: Pod, sidecar: Membership, trainer: Trainer) -> Pod:
    trainer = trainer._replace(asked=trainer.asked + 1)
    sidecar.join(trainer.name, trainer.used, trainer.cause, 600.0, _ticket(trainer), NOW)
    return _settled(pod, sidecar, trainer)


def _settled(pod: Pod, sidecar: Membership, trainer: Trainer | None) -> Pod:
    """After an input: the trainer gets its answer. Raises Violation."""
    before, output = pod, sidecar.take()
    pod = pod._replace(sidecar=sidecar, output=output, trainer=trainer)
    check_success(before, pod)
    for ticket, answer in output.answers:
        if isinstance(answer, Handed):
            pod = check_given(pod, answer)
        if trainer is not None and trainer.state == JOINING and ticket == _ticket(trainer):
            pod = _answered(pod, trainer, answer)
    check_telling(pod)
    check_place(pod)
    return pod


def _answered(pod: Pod, trainer: Trainer, answer: Answer) -> Pod:
    if isinstance(answer, Handed):
        if answer.round <= trainer.used:
            raise Violation(f"trainer {trainer.name} has used round {trainer.used} and is handed round {answer.round}")
        return pod._replace(trainer=trainer._replace(state=ENTERING, handed=answer.round))
    match answer.code:
        case Code.JOIN_TIMEOUT:
            return asking(pod, trainer.cause)
        case Code.STAGE_FINISHED:
            return pod._replace(finished=True, trainer=trainer._replace(state=FINISHED))
        case Code.LEAVING | Code.CLOSED:
            return _departed(pod, trainer)
    raise Violation(f"trainer {trainer.name} is refused: {answer}")


def _departed(pod: Pod, trainer: Trainer) -> Pod:
    """There is no next round for this trainer: it says that it leaves and exits, but not with code 0."""
    assert pod.sidecar is not None
    pod.sidecar.leave(trainer.name, RequestCause.TOLD_TO_LEAVE)
    pod.sidecar.detached(pod.sidecar._stream, NOW)
    return pod._replace(output=pod.sidecar.take(), trainer=trainer._replace(state=FAILED, connected=False))
