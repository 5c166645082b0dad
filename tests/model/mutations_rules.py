# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in the rules of the rendezvous, for `make mutants`; see `model.mutation`.

Each is one wrong line, told in a sentence that says what goes wrong by it.

Not here, as nothing can see a difference: `open_round` without `min_reached=None, all_running=None, all_spoke=None`
(all are None in every formed round); `_form` without `newcomer=None` (opening the round has done it); `has_changed`
without its look at the phase (a round that is forming has a number that no trainer holds).
"""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.decide:decide": (
            omit("rules are still applied after the end", "if step.state.ended: ...", by="composed"),
        ),
        "elasticjob.rendezvous.decide:reopen_round": (
            omit("an end for newcomers is told without a moment to save", "step.plan(True)"),
            omit("a round that is about to end is reopened for newcomers", "about_to_end", by="operator"),
            replace(
                "members that come back count as newcomers",
                "[worker for worker in roster.joined if worker.member not in state.participants]",
                "list(roster.kept)",
                by="composed",
            ),
            omit("newcomers wait for one that never comes", "now - since < last_call(step.spec, newcomers)"),
        ),
        "elasticjob.rendezvous.decide:RULES": (
            omit("who waits for a lost member is not told before all have saved", "hurry_after_loss"),
            omit("an index is never forgiven its failures", "budget.forgive_failures"),
            omit(
                "a failure too many waits for a round that could form",
                "budget.end_beyond_budget",
                by="core transcripts",
            ),
            omit("whose connection broke is the cause, as it was heard of first", "name_cause", by="core transcripts"),
        ),
        "elasticjob.rendezvous.accounts:better_account": (
            replace(
                "what is added to a reason is not read",
                "one.kind.place < now.place or says_more",
                "one.kind.place < now.place",
                by="core transcripts",
            ),
        ),
        "elasticjob.rendezvous.endings:note_finished": (
            replace(
                "an exit with code 0 counts as finished while the job is suspended",
                "[] if step.suspended else step.current.values()",
                "step.current.values()",
            ),
        ),
        "elasticjob.rendezvous.endings:_has_finished": (
            replace(
                "exit code 0 is a success before the last word has come",
                "waited >= step.spec.patience and lacks_last_word(step.state, worker)",
                "lacks_last_word(step.state, worker)",
                by="composed",
            ),
        ),
        "elasticjob.rendezvous.detector_rules:note_heartbeats": (
            replace(
                "a worker that writes nothing from the beginning is never suspected",
                "last = known.get(member)",
                "if worker.heartbeat is None: continue\nlast = known.get(member)",
            ),
        ),
        "elasticjob.rendezvous.decide:note_invalid": (
            replace("an invalid record has its time for ever", "known.get(worker.pod_key, step.now)", "step.now"),
        ),
        "elasticjob.rendezvous.decide:_send_away": (
            replace(
                "surplus workers are replaced without being told to leave",
                "worker.member is not None",
                "worker.member is None",
                by="composed",
            ),
            replace(
                "a victim that has gone is remembered for ever",
                "tuple(member for member in step.state.leaving if member in present)",
                "step.state.leaving",
                by="composed",
            ),
        ),
        "elasticjob.rendezvous.decide:explain_failure": (
            replace(
                "a failure counts although a lost pod explains it",
                "explained(state, step.workers, step.lost)",
                "False",
                by="composed",
            ),
        ),
        "elasticjob.rendezvous.decide:break_round": (
            replace(
                "a break is a failure although a lost pod explains it", "one.counted is not innocent", "one.counted"
            ),
        ),
        "elasticjob.rendezvous.decide:form_round": (
            replace("a suspended job times out", "step.spec.suspend", "False", by="operator"),
        ),
        "elasticjob.rendezvous.budget:is_within_budget": (
            replace("the budget of failures has no end", "restarts <= step.spec.max_restarts", "True", by="operator"),
        ),
        "elasticjob.rendezvous.decide:_form": (
            replace("the store is the last rank's", "members[0]", "members[-1]", by="composed"),
        ),
        "elasticjob.rendezvous.budget:reset_restarts": (
            omit("failures are forgotten while a round is forming", "step.state.phase is FORMED", by="operator"),
        ),
        "elasticjob.rendezvous.losses:_trains_or_was_notified": (
            replace(
                "a member that fails on its own counts as told to stop",
                "RequestCause.RENEWED",
                "RequestCause.WORKER_FAILED",
            ),
        ),
        "elasticjob.rendezvous.losses:lost_workers": (
            replace("pods that a node rejects before any round end the job", "ignored or worker.rejected", "ignored"),
            replace(
                "a pod that vanished unseen is not lost",
                "member.index not in present and member.index not in done",
                "False",
                by="composed",
            ),
            omit("a finished worker is lost when its pod goes", "if worker.index in done: ...", by="composed"),
            replace(
                "a pod that failed explains the failure of its own training",
                "was_member and _training_failed(spec, state, worker)",
                "False",
            ),
            replace(
                "an agent that hangs is never given up",
                "was_member and _hangs(spec, state, worker, now)",
                "False and _hangs(spec, state, worker, now)",
            ),
            omit("an agent that hangs explains a failure", "training_failed=True"),
        ),
        "elasticjob.rendezvous.losses:_break_of": (
            replace(
                "a restarted sidecar is taken for the member that it was",
                "worker is None or worker.member != member or not is_current(state, worker)",
                "worker is None",
            ),
            replace("a leave does not break the round", "request.type is RequestType.LEAVE", "False", by="composed"),
            replace(
                "a join made before the round breaks it again",
                "request.after < state.round",
                "request.after < state.round - 1",
                by="composed",
            ),
        ),
        "elasticjob.rendezvous.losses:_failed_by_itself": (
            omit("a pod that was evicted counts as failed by itself", "worker.disrupted"),
        ),
        "elasticjob.rendezvous.losses:_training_failed": (
            omit("rank 0 that serves no store explains nothing", "worker.pod in AT_FAULT"),
            omit("a pod that its node rejects counts as the training's failure", "not worker.rejected"),
        ),
        "elasticjob.rendezvous.losses:_hangs": (
            omit("an agent is taken to hang at once", "now - lived >= spec.rejoin"),
            replace("who was silent is taken to hang at its first answer", "now - lived", "now - state.clocks.opened"),
        ),
        "elasticjob.rendezvous.step:Step._moments": (
            omit(
                "nobody looks again when the join timeout has run out",
                "if clocks.all_spoke is not None: ...",
                by="operator",
            ),
            omit(
                "nobody looks again when the start timeout has run out",
                "if clocks.all_running is not None: ...",
                by="operator",
            ),
            omit(
                "nobody looks again when an invalid record has had its time",
                "yield from (since + spec.patience for since in clocks.invalid.values())",
            ),
            omit(
                "nobody looks again when the next pod may be made",
                "yield from (due(clocks, index) for index in clocks.failures)",
            ),
        ),
        "elasticjob.rendezvous.step:Step.replace_lost": (
            omit(
                "the replacement of a lost pod gets the same name",
                "self.replace_pod(lost.index, lost.replacement)",
                by="composed",
            ),
        ),
        "elasticjob.rendezvous.step:Step.replace_pod": (
            omit("a replacement is named like a pod that is there", "while (index, number) in self._pod_keys: ..."),
        ),
        "elasticjob.rendezvous.endings:_is_over": (
            replace(
                "the job is Complete when the first member has finished",
                "done.issuperset(member.index for member in state.participants) or _nobody_left(step)",
                "done",
                by="composed",
            ),
            omit("a job that wants nobody else waits for its victims for ever", "_nobody_left(step)", by="operator"),
        ),
        "elasticjob.rendezvous.endings:close_on_request": (
            replace(
                "a Close ends the formed round at once",
                "closers and state.phase is RendezvousPhase.FORMED",
                "False",
                by="composed",
            ),
        ),
        "elasticjob.rendezvous.endings:_is_closed_and_done": (
            replace(
                "after a Close the job never fails",
                "gone.issuperset(member.index for member in state.participants)",
                "not state.participants",
                by="operator",
            ),
        ),
        "elasticjob.rendezvous.endings:refuse_strays": (
            omit("a command that never joins is tried again and again", "ended and never_joined(worker)"),
        ),
        "elasticjob.rendezvous.limits:last_call": (
            replace("the shortest last call of those that joined applies", "max", "min"),
        ),
        "elasticjob.rendezvous.limits:worker_lost": (
            replace(
                "how long a worker says that it may be silent is not looked at",
                "spec.worker_lost if named is None else named",
                "spec.worker_lost",
            ),
        ),
        "elasticjob.rendezvous.barrier:judge": (
            replace(
                "one more than the minimum is needed",
                "len(roster.joined) < ...",
                "len(roster.joined) <= ...",
                by="composed",
            ),
            replace(
                "the last call starts anew at every look",
                "now if state.clocks.min_reached is None else state.clocks.min_reached",
                "now",
                by="operator",
            ),
            omit("a round forms without those that still stop their processes", "not awaits_members(state, roster)"),
        ),
        "elasticjob.rendezvous.barrier:_too_few": (
            replace(
                "the join timeout runs without pods",
                "not awaited or any(worker.pod is not PodState.RUNNING for worker in awaited)",
                "False",
                by="operator",
            ),
            replace(
                "the join timeout needs a moment more than it says",
                "now - since < ...",
                "now - since <= ...",
                by="operator",
            ),
            omit(
                "the join timeout runs before a torchrun is started",
                "if silent := silent_starts(awaited): ...",
                by="core transcripts",
            ),
            omit(
                "a worker that waits for quota holds up the timeouts of the others",
                "worker.pod is not PodState.UNSCHEDULABLE",
                by="core transcripts",
            ),
            omit(
                "one that fails again and again ends a group that can do without it",
                "roster.wanted_with_spares - len(failing) < least",
            ),
        ),
        "elasticjob.rendezvous.losses:may_be_explained": (
            omit(
                "a failure too many is judged before it is known if a pod that left was ended",
                "if away and now - state.clocks.opened < spec.worker_lost: ...",
                by="core transcripts",
            ),
            omit(
                "a failure too many is judged though a member may be lost",
                "any(lived_on(state, one) is None for one in stopping)",
                by="core transcripts",
            ),
        ),
        "elasticjob.rendezvous.barrier:_not_started": (
            replace(
                "the time to start torchrun begins anew at every look",
                "now if state.clocks.all_running is None else state.clocks.all_running",
                "now",
                by="core transcripts",
            ),
            replace(
                "a torchrun has as long to start as it has to join",
                "now - since < spec.start_timeout",
                "now - since < spec.join_timeout",
                by="core transcripts",
            ),
        ),
        "elasticjob.rendezvous.barrier:awaits_members": (
            omit(
                "a round forms while a member's last word is awaited", "lacks_last_word(state, worker)", by="operator"
            ),
            omit(
                "members are waited for no longer than they may take to join again, "
                "though it is not known if they are lost",
                "is_stopping(state, worker)",
            ),
        ),
        "elasticjob.rendezvous.barrier:_failing": (
            replace(
                "pods that fail before they join never end the job",
                "failures is not None and failures.before_any_round > spec.max_restarts",
                "False",
            ),
            replace(
                "a trainer that is no torchrun is started as often as others", "spec.max_crashes", "spec.max_restarts"
            ),
        ),
        "elasticjob.rendezvous.rank_order:_keeping_ranks": (
            replace(
                "survivors whose ranks are no more come among the newcomers by index",
                "(ranks.get(one.member, last), one.index)",
                "one.index",
                by="core transcripts",
            ),
        ),
        "elasticjob.rendezvous.roster:is_current": (
            replace(
                "records of pods that were given up count",
                "worker.replacement == ...",
                "worker.replacement <= ...",
                by="composed",
            ),
            replace(
                "a pod that the operator has not made counts", "worker.replacement == ...", "worker.replacement >= ..."
            ),
        ),
        "elasticjob.rendezvous.roster:has_joined": (
            omit("a worker that the kubelet holds back counts as joined", "worker.pod not in OUT", by="operator"),
            omit(
                "a join from before the last formed round counts", "request.after >= state.last_formed", by="composed"
            ),
        ),
        "elasticjob.rendezvous.roster:roster_of": (
            replace(
                "finished workers leave their room to others",
                "max(0, spec.replicas - len(state.done))",
                "spec.replicas",
                by="composed",
            ),
            omit(
                "a pod of another template is never told to leave", "*(worker for worker in there if worker.outdated)"
            ),
        ),
        "elasticjob.rendezvous.roster:_in_turn": (
            replace(
                "at a scale-down members go before those that wait",
                "worker.member in ranks and keeps_its_place(state, worker)",
                "False",
                by="core transcripts",
            ),
        ),
        "elasticjob.rendezvous.roster:pods_to_delete": (
            omit("a victim that does not go is never deleted", "overdue", by="operator"),
            replace(
                "victims are deleted before they are told",
                "overdue or worker.pod in OUT or worker.asks(RequestType.LEAVE)",
                "True",
            ),
            omit("pods of finished workers are deleted", "worker.index not in finished", by="composed"),
            replace(
                "a pod that the operator has not made stays",
                "now - state.clocks.invalid.get(worker.pod_key, now) >= spec.patience",
                "False",
            ),
            replace(
                "an operator with an old view deletes pods that another has made",
                "now - state.clocks.invalid.get(worker.pod_key, now) >= spec.patience",
                "True",
                by="composed",
            ),
        ),
        "elasticjob.rendezvous.roster:lacks_last_word": (
            replace(
                "exit code 0 is a success, whatever the worker has said",
                "request.type is RequestType.JOIN and request.after < state.last_formed",
                "True",
                by="composed",
            ),
        ),
        "elasticjob.rendezvous.roster:pods_to_create": (
            omit("a pod that fails by itself is made anew at once", "due(state.clocks, index) <= now"),
        ),
        "elasticjob.rendezvous.roster:is_stopping": (
            omit("who has left and starts again is taken to hang", "not worker.asks(RequestType.LEAVE)"),
        ),
        "elasticjob.rendezvous.sizes:min_members": (
            replace(
                "the minimum does not fall with the finished",
                "max(1, spec.min_replicas - len(state.done))",
                "spec.min_replicas",
                by="operator",
            ),
        ),
        "elasticjob.rendezvous.backoff:after_one_more": (
            replace(
                "the failures of members are counted twice",
                "0 if was_member else before_any_round + (not ignored)",
                "before_any_round + (not ignored)",
            ),
        ),
        "elasticjob.rendezvous.reasons:why_reopened": (
            omit("a replacement is told as a scaling", "spec.replicas > state.replicas > 0"),
        ),
        "elasticjob.agreed:state_of": (
            omit("a new operator does not know what was wanted before", "replicas=agreed.replicas", by="composed"),
            omit("a new operator does not know who has finished", "finished=tuple(agreed.finished)", by="composed"),
        ),
        "elasticjob.rendezvous.transitions:MOVES": (
            replace(
                "a round that is broken keeps its number",
                "Move(FORMED, ROUND_BROKEN, FORMING, 1, ...)",
                "Move(FORMED, ROUND_BROKEN, FORMING, 0, ...)",
                by="composed",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership._formed_for_me": (
            omit("a round is handed out while it is forming", "job.phase is FORMED", by="composed"),
            omit(
                "a round is handed out that was formed before the join", "job.round > self._joined_after", by="composed"
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership._serve": (
            omit(
                "a join is not made again when a round was formed without it",
                "if last_formed > self._joined_after: ...",
                by="composed",
            ),
            replace(
                "a new trainer's join is older than the round that its predecessor held",
                "max(last_formed, waiter.after, before)",
                "waiter.after",
                by="composed",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership._lose_trainer": (
            replace(
                "a trainer that was killed in a round leaves no word",
                "if self.mode is Mode.HANDED: self._leave(RequestCause.AGENT_LOST)\nelse: ...",
                "...",
            ),
        ),
        "elasticjob_sidecar.membership.view:final_answer": (
            replace(
                "a trainer's successor is handed the same round",
                "waiter.after < now.handed.round == now.held",
                "waiter.after < now.handed.round",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership._asked": (
            omit(
                "a Close is asked on after the rendezvous is closed", "self.job is None or self.job.phase is not CLOSED"
            ),
        ),
        "elasticjob_sidecar.membership.modes:MOVES": (
            replace(
                "a join is renewed, and the record does not ask it",
                "ModeChange((JOINING,), RequestCause.RENEWED, JOINING, RequestType.JOIN, ...)",
                "ModeChange((JOINING,), RequestCause.RENEWED, JOINING, None, ...)",
                by="composed",
            ),
        ),
        "elasticjob_sidecar.membership.output:Standing.leaving": (
            replace(
                "the successor of a victim is not told to leave",
                "self.job is not None and self.me in self.job.leaving",
                "False",
                by="composed",
            ),
        ),
        "elasticjob_sidecar.membership.view:has_changed": (
            replace(
                "a trainer whose sidecar was restarted goes on in a round that is not its own",
                "job.phase is RendezvousPhase.FORMED and not worker.in_round(held)",
                "False",
            ),
        ),
    },
    by="unit",
)
