# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what concerns a training that hangs, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.losses:_break_of": (
            replace(
                "hangs: they count as no failure",
                "Break(member, RoundCause.TRAINING_HUNG, worker.hung, True)",
                "Break(member, RoundCause.TRAINING_HUNG, worker.hung, False)",
                by="core hangs",
            ),
            omit(
                "hangs: a round that trains on after a Close is ended",
                "state.phase is RendezvousPhase.FORMED",
                by="core hangs",
            ),
        ),
        "elasticjob_operator.job.stalls:hang_of": (
            replace(
                "hangs: one rank that reports no more is enough",
                "any(stall.step is not None and not stall.stalled for stall in stalls)",
                "False",
            ),
            replace("hangs: who has not answered is not waited for", "left > 0 and not answered", "False"),
            omit("hangs: who never answers is waited for without an end", "left > 0"),
            omit(
                "hangs: they are announced again while the status waits to be written",
                "asked.told",
                by="operator reconciler",
            ),
            omit(
                "hangs: a new operator takes one for over until it has its own answers",
                "hung and agreed.stalled == agreed.round",
            ),
        ),
        "elasticjob_operator.job.stalls:_answers": (
            omit("hangs: what was said of an earlier round counts", "status.stall.round == agreed.round"),
        ),
        "elasticjob_operator.job.stalls:Hangs.see": (
            omit("hangs: a job that only wants to be told is restarted", 'report.spec.hang_policy == "Restart"'),
        ),
        "elasticjob_operator.job.stalls:_lagging": (
            replace(
                "hangs: a worker whose sidecar knows no such question is named for it",
                "if one.stall is not None:\n    by_state.setdefault(one.stall.process, []).append(one)",
                "by_state.setdefault(one.stall.process if one.stall else None, []).append(one)",
            ),
            replace(
                "hangs: many that compute are named, as where they wait for a GPU",
                "0 < len(computing) <= len(waiting)",
                "computing",
            ),
            replace("hangs: all who are a step behind are named", "0 < 2 * len(behind) < len(steps)", "behind"),
        ),
        "elasticjob_sidecar.membership.stalls:Stalls.reported": (
            omit(
                "hangs: a script that has taken no step yet stalls",
                "step is None and self._since is None",
                by="sidecar stalls",
            ),
        ),
        "elasticjob_sidecar.membership.stalls:Stalls._enter": (
            replace(
                "hangs: the next round goes by the steps of the last",
                "round != self._round",
                "round and not self._round",
                by="sidecar stalls",
            ),
            omit("hangs: a trainer that has finished stalls", "worker.mode is Mode.HANDED", by="sidecar stalls"),
        ),
        "elasticjob_sidecar.membership.stalls:Stalls.look": (
            omit(
                "hangs: what a process did before it went on is told of the next stall",
                "self._process = None if known is not None and known.stalled else self._process",
                by="sidecar stalls",
            ),
        ),
        "elasticjob_torch.agent.stacks:ask_for_stacks": (
            omit(
                "hangs: a process that does not catch the signal is ended by it",
                "hears(process)",
                by="trainer stalls",
            ),
        ),
        "elasticjob_torch.agent.stalls:_judged": (
            replace(
                "hangs: who waits for a GPU is said to compute",
                "state is State.COMPUTES and _uses_device(process)",
                "False",
                by="trainer stalls",
            ),
        ),
    },
    by="operator stalls",
)
