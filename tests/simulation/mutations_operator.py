"""Seeded mistakes in what carries out the operator's decisions, for `make mutants`; see `model.mutations`.

Not here, as nothing can see a difference: work that `WorkQueue.stop` does not cancel (the process ends instead);
answers to a `create_pod` that are not noted (the name is taken at the next try, and the watch tells of the pod); a
delete that fails where the object is gone, and an overlooked end of a job or pod (the next try and the next listing
mend both).
"""

from model.mutations import Mutation

RECONCILER, MEMORY, STATUS, APP, CLIENT, LEADER, CACHE, LISTING, QUEUE, HANDLERS, GRANTS, PODS, TEMPLATE, SLOTS = (
    f"operator/elasticjob_operator/{name}.py"
    for name in (
        "reconciler",
        "memory",
        "actions/status_writer",
        "app",
        "cluster/client",
        "cluster/leader",
        "cluster/cache",
        "cluster/listing",
        "cluster/workqueue",
        "cluster/handlers",
        "actions/grants",
        "actions/worker_pods",
        "actions/template_check",
        "actions/slots",
    )
)

MUTATIONS = (
    Mutation(
        "a status of a later term is written over",
        STATUS,
        "        if report.before.term > self._leadership.term:\n"
        "            await self._leadership.outgrow(report.before.term)\n"
        "            return Retry(0.0)\n",
        "",
        "simulation",
    ),
    Mutation(
        "pods are ended by a status that is not written yet",
        STATUS,
        "        if not isinstance(pace, Due):\n            return pace\n",
        "        if not isinstance(pace, Due):\n            return Unchanged()\n",
        "simulation",
    ),
    Mutation(
        "a delete hits whatever has the name by now",
        CLIENT,
        '{"preconditions": {"uid": uid}, "propagationPolicy": "Background"}',
        '{"propagationPolicy": "Background"}',
        "simulation",
    ),
    Mutation(
        "an ended job is never deleted",
        RECONCILER,
        "        if not isinstance(expiry, Expired):\n            return expiry\n",
        "        if not isinstance(expiry, Expired):\n            return expiry\n        return Done()\n",
        "simulation",
    ),
    Mutation(
        "what an operator of other options gave is not renewed",
        RECONCILER,
        "        if new or (memory.settled and not state.ended):",
        "        if new:",
        "simulation",
    ),
    Mutation(
        "a status that met a newer one counts as written",
        STATUS,
        'meta["name"]))\n            return Retry(0.0)\n',
        'meta["name"]))\n            return Written()\n',
        "simulation",
    ),
    Mutation(
        "nothing is listed anew",
        MEMORY,
        "        if memory is None or memory.fresh_for() <= 0:",
        "        if memory is None:",
        "simulation",
    ),
    Mutation(
        "a job of which nothing is heard is not listed again",
        RECONCILER,
        "        yield LookAgain(ENDED_SECONDS if decision.state.ended else memory.fresh_for())\n",
        "",
        "tests/unit/operator/test_reconciler.py",
    ),
    Mutation(
        "a phase whose beginning was not answered is taken for as old as the one before",
        MEMORY,
        "        if self.phase not in (None, phase):\n",
        "        if False:\n",
        "tests/unit/operator/test_reconciler.py",
    ),
    Mutation(
        "a deleted job comes back with an answer that was on its way",
        "operator/elasticjob_operator/cluster/cache.py",
        'job["metadata"]["uid"] not in view.gone and ',
        "",
        "tests/unit/operator/cluster/test_cache.py",
    ),
    Mutation(
        "a worker may doubt as many as it likes",
        "operator/elasticjob_operator/job/records.py",
        ") > MAX_DOUBTS:",
        ") > 65536:",
        "tests/unit/operator/job/test_records.py",
    ),
    Mutation(
        "what time alone brings about is not waited for",
        RECONCILER,
        "            yield LookAgain(decision.wake_at - self._leadership.clock.now())\n",
        "            pass\n",
        "simulation",
    ),
    Mutation(
        "what was measured is forgotten at each step",
        RECONCILER,
        "        memory.keep(report.decision.state)\n",
        "",
        "simulation",
    ),
    Mutation(
        "a job of the same name inherits what was known of the one before",
        MEMORY,
        '(memory.uid, memory.epoch) != (view.job["metadata"]["uid"], epoch)',
        "memory.epoch != epoch",
        "tests/unit/operator/test_reconciler.py",
    ),
    Mutation(
        "pods are made before their access",
        RECONCILER,
        "            if isinstance(given, Retry):\n                return given\n",
        "",
        "simulation",
    ),
    Mutation(
        "an operator leads on for long after its last renewal",
        LEADER,
        "LOST_SHARE = 0.8 ",
        "LOST_SHARE = 6.0 ",
        "simulation",
    ),
    Mutation(
        "a standby takes a Lease that is held",
        LEADER,
        "        return now - self._seen[1] >= max(self._times.duration, named)\n",
        "        return now - self._seen[1] >= self._times.renew\n",
        "simulation",
    ),
    Mutation(
        "a leader takes its Lease back from the next",
        LEADER,
        "(self._identity, self.term):\n                raise LeaseLost from None\n",
        "(self._identity, self.term):\n                pass\n",
        "simulation",
    ),
    Mutation(
        "the next leader leads in the same term",
        LEADER,
        '.get("leaseTransitions", 0) + 1)',
        '.get("leaseTransitions", 0))',
        "simulation",
    ),
    Mutation(
        "a late event writes over what is newer",
        CACHE,
        '    return int(body["metadata"]["resourceVersion"]) >= int(known["metadata"]["resourceVersion"])\n',
        "    return True\n",
        "simulation",
    ),
    Mutation(
        "a listing takes away what was made meanwhile",
        CACHE,
        "    return {**listed, **newer}\n",
        "    return listed\n",
        "operator tests",
    ),
    Mutation(
        "a listing brings back what is gone",
        CACHE,
        ' if item["metadata"]["uid"] not in gone]',
        "]",
        "operator tests",
    ),
    Mutation(
        "the end of a job takes away the next one of its name",
        CACHE,
        '            if view.job is not None and view.job["metadata"]["uid"] == job["metadata"]["uid"]:\n',
        "            if view.job is not None:\n",
        "operator tests",
    ),
    Mutation(
        "of a long list only the first page is read",
        CLIENT,
        '        while after := answer["metadata"].get("continue"):\n',
        '        while False and (after := answer["metadata"].get("continue")):\n',
        "simulation",
    ),
    Mutation(
        "a pod of the same name is ended in place of the one that was meant",
        CLIENT,
        '{"metadata": {"uid": meta["uid"]}, "spec": {"activeDeadlineSeconds": seconds}}',
        '{"spec": {"activeDeadlineSeconds": seconds}}',
        "simulation",
    ),
    Mutation(
        "a request of the Lease may take for ever",
        CLIENT,
        "            response = await self._client.call_api(*parts, _request_timeout=seconds)\n",
        "            response = await self._client.call_api(*parts, _request_timeout=3600)\n",
        "simulation",
    ),
    Mutation(
        "work that is asked for while it runs is forgotten",
        QUEUE,
        "                delay, failed = await self._attempt(key, failures)\n",
        "                delay, failed = await self._attempt(key, failures)\n"
        "                self._due.pop(key, None)\n",
        "simulation",
    ),
    Mutation(
        "work that failed is not tried again",
        QUEUE,
        "            return delay, True\n",
        "            return None, True\n",
        "simulation",
    ),
    Mutation(
        "an earlier wish does not wake what waits for later",
        QUEUE,
        "            self._wakes[key].set()\n",
        "            pass\n",
        "simulation",
    ),
    Mutation(
        "what somebody has changed of the access stays so",
        GRANTS,
        "        if own and change is None:\n",
        "        if own:\n",
        "simulation",
    ),
    Mutation(
        "access that is not the job's own is taken for it",
        GRANTS,
        "and not _is_left_over(found, body, job):\n",
        "and False:\n",
        "simulation",
    ),
    Mutation(
        "what an earlier job of the name has left is in the way for ever",
        GRANTS,
        '    return any((one["apiVersion"], one["kind"], one["name"]) == former for one in owners)\n',
        "    return False\n",
        "operator tests",
    ),
    Mutation(
        "pods that were refused are not tried again",
        PODS,
        "        if refusal == self.refusal:\n            return again\n",
        "        if refusal == self.refusal:\n            return None\n",
        "simulation",
    ),
    Mutation(
        "a pod that was refused counts as made",
        PODS,
        '                return Answer(why=NAMED.sub("", str(error)))\n',
        "                return Answer(made=True)\n",
        "simulation",
    ),
    Mutation(
        "a template is not judged again when it was mended",
        TEMPLATE,
        "        if given == self._checked:\n",
        "        if self._checked is not None:\n",
        "simulation",
    ),
    Mutation(
        "who waits for a slot waits for ever",
        SLOTS,
        "            del self._held[key]\n        self._hand_out()\n",
        "            del self._held[key]\n",
        "simulation",
    ),
    Mutation(
        "an operator that has lost its Lease works on",
        APP,
        "    except LeaseLost:\n        return True\n",
        "    except LeaseLost:\n        await asyncio.sleep(3600)\n        return True\n",
        "simulation",
    ),
)
