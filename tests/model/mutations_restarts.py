# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what people set a time for, restarts and the deadline of a job; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.decide:reopen_round": (
            replace("restarts: none is done", "about_to_end or not (grows or restarts)", "about_to_end or not grows"),
            replace("restarts: one waits for who is on the way", "restarts or arrived or ...", "arrived or ..."),
            replace(
                "restarts: one that is taken back is done",
                'step.spec.restarted_at not in ("", state.restarted_at)',
                "step.spec.restarted_at != state.restarted_at",
            ),
            replace(
                "restarts: they are told as a scaling",
                "why_restarted(step.spec) if restarts else why_reopened(...)",
                "why_reopened(step.spec, state, newcomers, replaced)",
            ),
        ),
        "elasticjob.rendezvous.decide:_form": (
            omit(
                "restarts: each is done over and over",
                "step.set(restarted_at=step.spec.restarted_at or state.restarted_at)",
            ),
            replace(
                "restarts: one that was taken back is forgotten, and done again when it comes back",
                "step.spec.restarted_at or state.restarted_at",
                "step.spec.restarted_at",
            ),
        ),
        "elasticjob.agreed:state_of": (
            omit(
                "restarts: a new operator does the last one again",
                'restarted_at=agreed.restarted_at or ""',
                by="operator status",
            ),
        ),
        "elasticjob_operator.job.conditions:_undone_restart": (
            omit("restarts: that one is not done is told after the end", "not state.ended", by="operator status"),
        ),
        "elasticjob.rendezvous.decide:RULES": (omit("deadline: no job ends at it", "endings.fail_overdue"),),
        "elasticjob.rendezvous.endings:fail_overdue": (
            omit("deadline: a job that is suspended fails", "step.suspended"),
        ),
        "elasticjob.rendezvous.step:Step._moments": (
            omit("deadline: nobody looks when it comes", "if spec.deadline is not None and not self.suspended: ..."),
        ),
        "elasticjob_operator.job.deadline:active_of": (
            omit("deadline: a job is active after its end", "not state.ended", by="operator deadline"),
            omit(
                "deadline: a round that trains on after a Close is taken for suspended",
                "state.phase is RendezvousPhase.CLOSED",
                by="operator deadline",
            ),
            replace(
                "deadline: each resumption counts anew",
                "Active(seconds=known.seconds, since=now)",
                "Active(seconds=0, since=now)",
                by="operator deadline",
            ),
        ),
    },
    by="core transcripts",
)
