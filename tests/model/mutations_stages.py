# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in how stages and the job end, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.endings:_has_finished": (
            omit("stages: a worker has finished when its torchrun has", "worker.pod in ENDED_WITH_0"),
            replace(
                "stages: a container that has failed has finished", "worker.pod in ENDED_WITH_0", "worker.pod in ENDED"
            ),
        ),
        "elasticjob.rendezvous.endings:note_finished": (
            omit("stages: who is finishing is lost as it has left its round", "finishing.append(member)"),
        ),
        "elasticjob.rendezvous.decide:RULES": (
            omit("stages: a container may go on for ever", "endings.fail_unfinished"),
        ),
        "elasticjob.rendezvous.decide:form_round": (
            replace(
                "stages: workers with different scripts form a round",
                "stages.differ(step.state, verdict.members)",
                "''",
                by="core transcripts",
            ),
        ),
        "elasticjob.rendezvous.endings:_why_failing": (
            replace(
                "stages: a container may fail once more",
                "failed <= spec.max_restarts",
                "failed <= spec.max_restarts + 1",
            ),
        ),
        "elasticjob.rendezvous.endings:fail_unfinished": (
            replace(
                "stages: the time of who goes on begins while others train",
                "is_over or awaited",
                "True",
                by="core transcripts",
            ),
            replace(
                "stages: each step takes how often a container has failed anew",
                "known.get(member, Finishing(worker.crashes))",
                "Finishing(worker.crashes)",
            ),
        ),
        "elasticjob.rendezvous.endings:end_stage": (
            replace("stages: the job is complete while containers go on", "not state.finishing", "True"),
            omit("stages: a stage begins in a job that is closed", "state.phase is not RendezvousPhase.CLOSED"),
        ),
        "elasticjob.rendezvous.endings:_next_stage": (
            omit("stages: who has succeeded in one has no place in the next", "finishing=()"),
        ),
        "elasticjob.rendezvous.roster:has_joined": (
            omit("stages: a round has members of two", "request.stage == state.stage"),
        ),
        "elasticjob.rendezvous.roster:keeps_its_place": (
            omit("stages: who is between two has lost its place", "is_between_stages(worker)", by="core transcripts"),
        ),
        "elasticjob.rendezvous.roster:began_anew": (
            omit("stages: a word from before the round breaks it", "request.round >= round", by="composed"),
        ),
        "elasticjob.rendezvous.losses:_break_of": (
            omit(
                "stages: a member that was started again has its place in the round",
                "if began_anew(state, request, state.round): ...",
            ),
        ),
        "elasticjob.rendezvous.losses:_trains_or_was_notified": (
            replace(
                "stages: the deletion of who has left hurries those who save",
                "leaves and request.cause == RequestCause.TOLD_TO_LEAVE",
                "leaves and request.cause == RequestCause.TOLD_TO_LEAVE and not worker.deleting",
                by="core moves",
            ),
        ),
        "elasticjob.rendezvous.roster:pods_to_delete": (
            omit("stages: who was told to leave is started again", "worker.asks(RequestType.LEAVE)"),
            replace("stages: who goes on as the job has failed stays", "state.finished_indices", "state.done"),
        ),
        "elasticjob_sidecar.membership.torchruns:Torchruns._next_of": (
            replace("stages: each torchrun is of the first", "passed + 1", "1", by="sidecar membership"),
            replace(
                "stages: those of an earlier start of the container count",
                "container == torchrun.container",
                "True",
                by="sidecar membership",
            ),
        ),
        "elasticjob_sidecar.membership.view:final_answer": (
            replace(
                "stages: a torchrun waits for a stage that is finished",
                "stage <= max(torchruns.succeeded, job.stage - 1)",
                "False",
                by="sidecar membership",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership.leave": (
            replace(
                "stages: who has finished one and is told to leave is started again",
                "told_to or self.mode in (Mode.JOINING, Mode.HANDED)",
                "self.mode in (Mode.JOINING, Mode.HANDED)",
                by="sidecar membership",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership._settle": (
            omit("stages: a torchrun is served before the record is read", "self.recalled", by="sidecar membership"),
        ),
    },
    by="core transcripts",
)
