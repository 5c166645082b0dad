# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what carries out the operator's decisions, for `make mutants`; see `model.mutation`.

Not here, as nothing can see a difference: work that `WorkQueue.stop` does not cancel (the process ends instead);
answers to a `create_pod` that are not noted (the name is taken at the next try, and the watch tells of the pod); a
delete that fails where the object is gone, and an overlooked end of a job or pod (the next try and the next listing
mend both).
"""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob_operator.actions.status_writer:StatusWriter.write": (
            omit("a status of a later term is written over", "if is_ahead(...): ..."),
            replace("pods are ended by a status that is not written yet", "return pace", "return Unchanged()"),
            replace(
                "a status that met a newer one counts as written",
                "self._cache.note_job(...); return Retry(0.0)",
                "self._cache.note_job(...); return Written()",
            ),
        ),
        "elasticjob_operator.actions.status_writer:is_ahead": (
            replace(
                "two leaders have one term, as their Leases were made one after the other",
                "status.lease != lease",
                "False",
                by="operator status writer",
            ),
        ),
        "elasticjob_operator.job.pace:told_by": (
            replace("a take-over writes all statuses", '{"term": before.term}', "{}", by="operator pace"),
            omit(
                "a term is not told while a round forms",
                "before.rendezvous.phase is not RendezvousPhase.FORMING",
                by="operator pace",
            ),
            omit("another Lease's holder is not to see it", "before.lease == after.lease", by="operator pace"),
            replace(
                "a term waits while acks are awaited",
                "before.rendezvous.ping.members",
                "False",
                by="operator pace",
            ),
        ),
        "elasticjob_operator.job.pace:report_seconds": (
            omit("a heartbeat waits while a round starts", "not status.get('starting')", by="operator pace"),
            omit("an answer waits for many jobs", "(agreed.get('ping') or {}).get('members')", by="operator pace"),
        ),
        "elasticjob_operator.job.rivals:Rivals.outbid": (
            omit("of two installations both leave the jobs alone", "is_older(theirs, ours)", by="operator rivals"),
            omit("who is outbid once in a while leaves for good", "now - at < OUTBID_SECONDS", by="operator rivals"),
        ),
        "elasticjob_operator.job.rivals:Rivalry.left_to": (
            omit("who has lost the Lease counts as a rival", "is_rival(ours, theirs)", by="operator rivals"),
        ),
        "elasticjob_operator.job.rivals:Rivalry._is_stuck": (
            omit("the other is gone while it still acts", "before != self._seen", by="operator rivals"),
            omit("the other is gone while nothing is due", "not is_due(before, after)", by="operator rivals"),
        ),
        "elasticjob_operator.cluster.client:Kube.delete": (
            omit("a delete hits whatever has the name by now", '"preconditions": {"uid": uid}'),
        ),
        "elasticjob_operator.cluster.client:Kube._list": (
            replace(
                "of a long list only the first page is read",
                "(after := answer['metadata'].get('continue'))",
                'False and (after := answer["metadata"].get("continue"))',
            ),
        ),
        "elasticjob_operator.cluster.client:Kube.set_deadline": (
            omit("a pod of the same name is ended in place of the one that was meant", '"metadata": {"uid": pod.uid}'),
        ),
        "elasticjob_operator.cluster.client:Kube.request": (
            replace("a request of the Lease may take for ever", "seconds=seconds", "seconds=3600"),
        ),
        "elasticjob_operator.actions.expiry:Expiry.keep": (
            replace(
                "an ended job is never deleted",
                'meta = report.job["metadata"]',
                'return Done(); meta = report.job["metadata"]',
            ),
        ),
        "elasticjob_operator.actions.access:Access.keep": (
            omit("what an operator of other options gave is not renewed", "self._due_in() <= 0"),
        ),
        "elasticjob_operator.actions.access:Access.again": (
            replace(
                "a job of which nothing is heard is not looked at again",
                "self._due_in() or ACCESS_KEPT_SECONDS",
                "math.inf",
                by="operator reconciler",
            ),
        ),
        "elasticjob_operator.job.round_clocks:RoundClocks.again": (
            replace(
                "what time alone brings about is not waited for",
                "None if report.decision.wake_at is None else report.decision.wake_at - now",
                "None",
            ),
        ),
        "elasticjob_operator.job.round_clocks:RoundClocks.after": (
            omit(
                "what was measured is forgotten at each step",
                "self.known, self._phase = (state.clocks, (state.round, state.phase))",
            ),
        ),
        "elasticjob_operator.actions.decided_pods:DecidedPods._make": (
            omit("pods are made before their access", "if isinstance(given, Retry): ..."),
        ),
        "elasticjob_operator.memory:Memories.recall": (
            replace(
                "a job of the same name inherits what was known of the one before",
                "(memory.uid, memory.epoch) != (uid, epoch)",
                "memory.epoch != epoch",
                by="operator reconciler",
            ),
        ),
        "elasticjob_operator.job.round_clocks:RoundClocks.of": (
            replace(
                "a phase whose beginning was not answered is taken for as old as the one before",
                "self._phase not in (None, phase)",
                "False",
                by="operator reconciler",
            ),
        ),
        "elasticjob_operator.cluster.cache:Cache._note": (
            replace(
                "a late event of a pod writes over what is newer",
                "one.version >= before.version",
                "True",
                by="operator cache",
            ),
            omit(
                "a pod comes back with an answer that was on its way",
                "not self._is_gone(one.uid, one.version)",
                by="operator cache",
            ),
        ),
        "elasticjob_operator.cluster.cache:Cache.note_report": (
            omit(
                "what a worker asks for is taken for a heartbeat",
                "if not record.only_reports(before): ...",
                by="operator cache",
            ),
        ),
        "elasticjob_operator.cluster.cache:Cache.note_progress": (
            replace("no step follows a decision", "view.shows", "True", by="operator cache"),
            omit("an earlier form writes over what is newer", "is_newer(job, view.job)", by="operator cache"),
            omit(
                "what else has changed in a job is taken for progress",
                "_is_same_but_for_progress(view.job, job)",
                by="operator cache",
            ),
        ),
        "elasticjob_operator.job.observe:_goes_on": (
            omit(
                "what a worker asks for is read as a heartbeat",
                "not record.only_reports(known.record)",
                by="operator records",
            ),
        ),
        "elasticjob.reading.record:Record.only_reports": (
            omit("a request is taken for a heartbeat", "_asked_by(now) == _asked_by(then)", by="operator records"),
        ),
        "elasticjob_operator.cluster.cache:is_newer": (
            replace(
                "a late event writes over what is newer",
                "_version_of(body) >= _version_of(known)",
                "True",
            ),
        ),
        "elasticjob_operator.cluster.cache:Cache._merge": (
            omit("a listing takes away what was made meanwhile", "one.version <= version", by="operator tests"),
            omit("a listing leaves what has vanished", "del known[name]", by="operator tests"),
        ),
        "elasticjob_operator.cluster.cache:Cache._replace": (
            replace(
                "a listing brings back what is gone",
                "not self._is_gone(one.uid, one.version)",
                "True",
                by="operator tests",
            ),
        ),
        "elasticjob_operator.cluster.cache:Cache.note_job": (
            omit(
                "a deleted job comes back with an answer that was on its way",
                "uid not in self._gone",
                by="operator cache",
            ),
            omit(
                "the end of a job takes away the next one of its name",
                'view.job["metadata"]["uid"] == uid',
                by="operator tests",
            ),
        ),
        "elasticjob.reading.validity:_problem_of": (
            replace(
                "a worker may suspicion as many as it likes",
                "(suspected := len(said.status.suspects)) > MAX_SUSPECTS",
                "(suspected := len(said.status.suspects)) > 65536",
                by="operator records",
            ),
        ),
        "elasticjob_operator.cluster.leader:LOST_SHARE": (
            replace("an operator leads on for long after its last renewal", "0.8", "6.0"),
        ),
        "elasticjob_operator.cluster.leader:Leadership._is_free": (
            replace("a standby takes a Lease that is held", "max(self._times.duration, named)", "self._times.renew"),
            replace(
                "a standby goes by its own time where the leader's is longer",
                "max(self._times.duration, named)",
                "self._times.duration",
                by="operator leader",
            ),
        ),
        "elasticjob_operator.cluster.leader:LeaseClock.tick": (
            omit(
                "the clock of a leader that has stood by for long does not run for as long",
                "self._last is not None",
                by="operator leader",
            ),
        ),
        "elasticjob_operator.cluster.leader:Leadership._rewrite": (
            omit("a leader takes its Lease back from the next", "raise LeaseLost from None"),
        ),
        "elasticjob_operator.cluster.leader:Leadership._try_to_acquire": (
            replace("the next leader leads in the same term", "... + 1", "..."),
        ),
        "elasticjob_operator.job.numbers:renumbered": (
            replace(
                "a name that another pod has is tried for ever", "free != number", "False", by="operator reconciler"
            ),
        ),
        "elasticjob_operator.actions.worker_pods:WorkerPods._who_has": (
            replace(
                "who may be about to go is not waited for",
                "pod.deleting or pod.owners",
                "False",
                by="operator refusals",
            ),
        ),
        "elasticjob_operator.cluster.workqueue:WorkQueue._run": (
            replace(
                "work that is asked for while it runs is forgotten",
                "failures = failures + 1 if failed else 0",
                "self._due.pop(key, None); failures = failures + 1 if failed else 0",
            ),
        ),
        "elasticjob_operator.cluster.workqueue:WorkQueue._attempt": (
            replace("work that failed is not tried again", "delay, True", "None, True"),
        ),
        "elasticjob_operator.cluster.workqueue:WorkQueue.add": (
            omit("an earlier wish does not wake what waits for later", "self._wakes[key].set()"),
        ),
        "elasticjob_operator.actions.access:Access._ensure": (
            omit("what somebody has changed of the access stays so", "change is None"),
            replace("access that is not the job's own is taken for it", "not _is_left_over(found, job)", "False"),
        ),
        "elasticjob_operator.actions.access:_is_left_over": (
            replace(
                "what an earlier job of the name has left is in the way for ever",
                'any((one["apiVersion"], one["kind"], one["name"]) == former for one in owners)',
                "False",
                by="operator tests",
            ),
            replace(
                "what is nobody's is taken for an earlier job's",
                "labels.get(JOB_LABEL) == name",
                "True",
                by="operator tests",
            ),
        ),
        "elasticjob_operator.actions.worker_pods:WorkerPods.create": (
            replace("pods that were refused are not tried again", "return again", "return None"),
        ),
        "elasticjob_operator.actions.worker_pods:WorkerPods._create": (
            replace(
                "a pod that was refused counts as made",
                'refusal=refused(explained(NAMED.sub("", str(error)), pod))',
                "made=True",
            ),
        ),
        "elasticjob_operator.actions.template_check:TemplateCheck.check": (
            replace(
                "a template is not judged again when it was mended",
                "given == self._checked",
                "self._checked is not None",
            ),
        ),
        "elasticjob_operator.actions.slots:Slots._give_back": (
            omit("who waits for a slot waits for ever", "self._hand_out()"),
        ),
        "elasticjob_operator.app:_lease_lost": (
            replace(
                "an operator that has lost its Lease works on",
                "return End.LEASE_LOST",
                "await asyncio.sleep(3600); return End.LEASE_LOST",
            ),
        ),
    },
    by="simulation",
)
