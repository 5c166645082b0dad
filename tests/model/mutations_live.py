# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in how training lives through changes of the group, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

UNACKED = "any(unacked_for(step.spec, step.state, one, step.now) is not None for one in step.able.values())"

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.barrier:judge": (
            omit("live: the others wait for the last call", "_goes_on(spec, state, roster, workers, now)"),
            replace(
                "live: members of the last round that may still join are not waited for",
                "late and not awaits_members(state, roster)",
                "late",
            ),
        ),
        "elasticjob.rendezvous.barrier:_goes_on": (
            omit("live: a failure counts before the loss that explains it is known", "judged"),
            omit("live: any failure is waited for", "not state.failure"),
            omit(
                "live: a failure that nothing can explain any more is waited for",
                "not may_be_explained(spec, state, workers, now)",
            ),
        ),
        "elasticjob.rendezvous.live:trains_on": (
            omit("live: processes that have yet to start are not waited for", "all(map(lives_on, joined))"),
            omit(
                "live: newcomers alone wait for nobody",
                "any(worker.member in state.participants for worker in joined)",
            ),
        ),
        "elasticjob.rendezvous.live:goes_on": (
            omit("live: no script saves where only some members are live", "state.all_live"),
            omit("live: no script saves before a restart that is asked for", "state.restart_round < state.round"),
            omit("live: no script saves where no member stays", "any(stay)"),
            omit("live: a member told to leave is taken for one that stays", "one not in state.leaving"),
        ),
        "elasticjob.rendezvous.live:opted_in": (
            replace("live: who opts in is not noted", "worker.live_in == state.round", "False"),
            replace(
                "live: who has opted in in an earlier round is taken for live",
                "worker.live_in == state.round",
                "worker.live_in",
            ),
            omit("live: another incarnation is taken for the one that is live", "worker.member == one"),
            omit("live: members that joined live are forgotten", "*state.live"),
        ),
        "elasticjob.rendezvous.decide:reopen_round": (
            omit("live: a newcomer waits for others", "(state.all_live and all(map(lives_on, newcomers)))"),
            omit("live: a round that not all live through is reopened for each newcomer", "state.all_live"),
            omit("live: newcomers that have yet to start are let in one by one", "all(map(lives_on, newcomers))"),
            omit(
                "live: processes live on into a restart that is asked for",
                "if restarts: step.set(restart_round=step.state.round)",
            ),
        ),
        "elasticjob.rendezvous.decide:break_round": (
            omit(
                "live: processes live on after a hang",
                "if any(one.cause == RoundCause.TRAINING_HUNG for one in broken): ...",
            ),
        ),
        "elasticjob.rendezvous.decide:hurry_after_loss": (
            replace(
                "live: a loss in a planned change is not told, as no script saves",
                "step.state.intact",
                "step.state.planned",
            ),
            omit("live: the silence of a member that was told to leave is nobody's loss", UNACKED),
        ),
        "elasticjob.rendezvous.failure_detector:able": (
            omit(
                "live: members told to leave are not pinged, and others wait for them",
                "*awaited_leavers(state, workers)",
            ),
        ),
        "elasticjob.rendezvous.failure_detector:awaited_leavers": (
            omit("live: members told to leave are pinged where nobody waits for them", "state.live"),
            omit("live: a member told to leave is pinged after it has left", "not one.asks(RequestType.LEAVE)"),
        ),
        "elasticjob.rendezvous.step:Step.plan": (
            omit("live: a planned change breaks the step of processes that live through it", "intact=planned"),
        ),
        "elasticjob.rendezvous.decide:_form": (
            replace(
                "live: a restart counts as done although processes have lived on",
                "all(member not in participants or member.index not in live for member in state.participants)",
                "True",
            ),
            replace("live: who joins live is not known as live", "live=live", "live=()"),
        ),
        "elasticjob.rendezvous.roster:has_joined": (
            omit(
                "live: a live join counts for a round of new processes",
                "not (request.live and request.after < state.restart_round)",
            ),
        ),
        "elasticjob.rendezvous.losses:may_be_explained": (
            omit("live: a failure too many waits for who has only left to come back", "comes_back(one)"),
        ),
        "elasticjob.rendezvous.losses:_break_of": (
            replace("live: a failed process is told as a worker that left", "comes_back(worker)", "False"),
        ),
        "elasticjob.rendezvous.endings:_next_stage": (
            omit("live: the next stage's processes are taken for live", "live=()"),
        ),
        "elasticjob_sidecar.membership.refusal:needs_new_processes": (
            replace(
                "live: who was in no round may not join a job that was restarted once",
                "held or last_formed_of(job)",
                "held",
                by="sidecar membership",
            ),
            replace(
                "live: old processes live on once the round for new ones has formed without them",
                "held or last_formed_of(job)",
                "last_formed_of(job)",
                by="sidecar scripts",
            ),
        ),
        "elasticjob_sidecar.membership.view:final_answer": (
            replace(
                "live: a join of processes that have to be new waits for ever",
                "new_processes(job, waiter.after) if waiter.live else None",
                "None",
                by="sidecar membership",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership._serve": (
            omit(
                "live: a join that is made again with new processes still says that old ones live on",
                "bool(self._request.live) is not waiter.live",
                by="sidecar membership",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership._announce": (
            omit(
                "live: a sidecar does not tell that processes live on",
                "live=waiter.live or None",
                by="sidecar membership",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership._hand": (
            omit(
                "live: scripts that have lived through a change are told to save before the next",
                "if self._waiter is not None and self._waiter.live: ...",
                by="sidecar scripts",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership.lives": (
            omit(
                "live: processes may opt in to a round that is over",
                "self._standing().check_round(round)",
                by="sidecar membership",
            ),
        ),
        "elasticjob_sidecar.membership.scripts:planned_end": (
            omit(
                "live: all scripts are told to save, whether they live on or not", "worker.live", by="sidecar scripts"
            ),
            omit("live: who has to leave does not save", "worker.leaving", by="sidecar scripts"),
            omit("live: who has to start anew does not save", "needs_new_processes(job, round)", by="sidecar scripts"),
        ),
        "elasticjob_sidecar.membership.view:view_of": (
            omit("live: newcomers are told that all live before a restart", "not restart", by="sidecar scripts"),
            replace("live: nobody is told to start anew", "restart=restart", "restart=False", by="sidecar scripts"),
            replace(
                "live: processes are told that their round stands while nobody can know",
                "api_away=api_away",
                "api_away=False",
                by="sidecar scripts",
            ),
            replace(
                "live: a round that stands is called broken",
                "changed and (restart or _is_broken(job, worker.held))",
                "restart or _is_broken(job, worker.held)",
                by="sidecar scripts",
            ),
            replace(
                "live: collectives go on though all processes have to be new",
                "restart or _is_broken(job, worker.held)",
                "_is_broken(job, worker.held)",
                by="sidecar scripts",
            ),
        ),
        "elasticjob_sidecar.membership.view:_is_broken": (
            omit(
                "live: a round that others have gone on from is not called broken",
                "job.round == held + 1",
                by="sidecar scripts",
            ),
            omit(
                "live: nobody is told that a member may be gone",
                "job.intact",
                by="sidecar scripts",
            ),
        ),
        "elasticjob_sidecar.membership.view:_all_live": (
            replace(
                "live: newcomers are told that all live where one does",
                "len(job.live) == len(job.participants) > 0",
                "len(job.live) > 0",
                by="sidecar scripts",
            ),
        ),
        "elasticjob_sidecar.api_server.job_watch:JobWatch._tell": (
            omit("live: a watch that failed counts as one that hears", "not self._failure", by="sidecar job watch"),
            omit("live: a watch in doubt counts as one that hears", "self._hurry is None", by="sidecar job watch"),
        ),
        "elasticjob_torch.live.attempts:Attempts.begin": (
            omit("live: a plan counts as a failure to form", "not place.after_loss", by="trainer attempts"),
            omit("live: losses in quick succession end all processes", "place.size < last.size", by="trainer attempts"),
            omit("live: a round that was passed over is a failure to form", "error is None", by="trainer attempts"),
            replace(
                "live: a group fails to form for ever", "len(self._failed) >= _MOST", "False", by="trainer attempts"
            ),
        ),
        "elasticjob_torch.agent.busy:Patience.__init__": (
            replace(
                "live: a busy process's pod is replaced before the process is started anew",
                "rejoin_seconds - stop_seconds - _MARGIN_SECONDS",
                "rejoin_seconds",
                by="trainer busy",
            ),
        ),
        "elasticjob_torch.agent.busy:Patience.look": (
            replace(
                "live: a save counts as any other work", "not all(saving)", "bool(list(saving))", by="trainer busy"
            ),
            replace(
                "live: a save is waited for for ever", "now - self._since > self._longest", "False", by="trainer busy"
            ),
        ),
        "elasticjob_torch.agent.going_on:GoingOn._await_boundary": (
            omit(
                "live: collectives with a member that is gone are left to end",
                "(view is not None and view.broken)",
                by="trainer going on",
            ),
            omit(
                "live: others wait in a collective for a member that saves, until they are late themselves",
                "self._patience.is_half_used()",
                by="trainer going on",
            ),
            omit("live: processes are told to cut again and again", "not self._is_cut", by="trainer going on"),
        ),
        "elasticjob_torch.agent.going_on:GoingOn._tell": (
            replace(
                "live: a sidecar that was away is not told again who lives",
                "self._times_away += 1",
                "pass",
                by="trainer going on",
            ),
            omit(
                "live: a sidecar that does not take it is told again without a pause",
                "now < self._tells_after",
                by="trainer going on",
            ),
        ),
        "elasticjob_torch.agent.going_on:GoingOn.would_begin_alone": (
            omit(
                "live: a join is taken back while a round forms",
                "view.phase == wire.Phase.FORMED",
                by="trainer going on",
            ),
            omit(
                "live: processes that cannot get ready are started again and again",
                "not self._has_been_alone",
                by="trainer going on",
            ),
        ),
        "elasticjob_torch.agent.going_on:GoingOn._stands": (
            omit("live: processes end while nobody is heard", "view is not None", by="trainer going on"),
            omit(
                "live: processes end while a change is on its way",
                "view.phase != wire.Phase.FORMING",
                by="trainer going on",
            ),
            omit("live: processes end by an older view", "view.round == self._round", by="trainer going on"),
        ),
        "elasticjob.agreed:state_of": (
            omit("live: a new operator forgets who is live", "live=agreed.live", by="operator status"),
            omit("live: a new operator forgets that no member is lost", "intact=agreed.intact", by="operator status"),
            omit(
                "live: a new operator forgets that processes have to be new",
                "restart_round=agreed.restart_round",
                by="operator status",
            ),
        ),
    },
    by="core transcripts",
)
