# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what concerns nodes that are about to go, for `make mutants`; see `model.mutation`."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.roster:roster_of": (
            replace("draining: nobody comes for a member", "sum(worker.draining for worker in staying)", "0"),
            omit("draining: a round ends for a worker whose own node goes", "not one.draining"),
            replace(
                "draining: a member leaves before anybody has come for it", "stands or one.pod_key in arrived", "True"
            ),
            replace("draining: who has come has no place, and its member stays", "not stands and draining", "False"),
            replace(
                "draining: a member is left over by the size while others come",
                "0 if others_come else _replaced_by_size(spec, state, len(staying), draining - len(successors), come)",
                "_replaced_by_size(spec, state, len(staying), draining - len(successors), come)",
            ),
            replace(
                "draining: a spare stays where the node goes",
                "[worker for worker in left if not worker.draining]",
                "left",
            ),
        ),
        "elasticjob.rendezvous.roster:_replaced_by_size": (
            replace(
                "draining: who waits for a larger round takes over from nobody",
                "min(there - size, draining, sum(not one.draining for one in come)) if enough else 0",
                "0",
            ),
            replace(
                "draining: a member leaves though too few for any round are there",
                "size >= min_members(spec, state)",
                "True",
            ),
        ),
        "elasticjob.rendezvous.roster:_in_turn": (
            replace(
                "draining: the highest rank is replaced, wherever it is",
                "(worker.draining, ranks[worker.member])",
                "ranks[worker.member]",
            ),
            replace(
                "draining: a worker whose node goes has a place before others",
                "(worker.pod_key not in arrived, worker.pod in STUCK, worker.draining, worker.index)",
                "(worker.pod_key not in arrived, worker.pod in STUCK, worker.index)",
            ),
        ),
        "elasticjob.rendezvous.decide:reopen_round": (
            replace(
                "draining: a round is not ended for who waits for a larger one",
                "replaced or _would_grow(step, newcomers)",
                "_would_grow(step, newcomers)",
            ),
            omit("draining: who is replaced is told so a step later", "_send_away(step, _reopened(step, step.state))"),
        ),
        "elasticjob.rendezvous.decide:_send_away": (
            replace(
                "draining: pods that come to such a node are made over and over",
                "step.put_off",
                "lambda *_, **__: None",
            ),
            replace("draining: pods that come to such a node are failures", "ignored=True", "ignored=False"),
        ),
        "elasticjob.rendezvous.decide:break_round": (
            omit(
                "draining: who is replaced where a round breaks is told so a step later",
                "_send_away(step, roster_of(step.spec, moved(step.state, ROUND_BROKEN), step.workers))",
            ),
        ),
        "elasticjob.rendezvous.barrier:judge": (
            replace(
                "draining: the size leaves over who came for a member and keeps another whose node goes",
                "sorted(roster.joined, key=lambda worker: worker.draining)",
                "roster.joined",
            ),
            omit("draining: the next round begins before rank 0 has saved", "not _saves(state, workers)"),
        ),
        "elasticjob.rendezvous.barrier:_saves": (
            omit("draining: rank 0 is waited for though it has left", "not worker.asks(RequestType.LEAVE)"),
        ),
        "elasticjob.reading.node:Node.read": (
            replace(
                "draining: a cordon says nothing before its taint comes",
                'spec.get("unschedulable")',
                "False",
                by="operator drain",
            ),
            omit("draining: a taint that only advises counts", "one['effect'] in KEEP_AWAY", by="operator drain"),
        ),
        "elasticjob_operator.job.drain:draining_by": (
            omit(
                "draining: a pod that tolerates the taint goes too",
                "not any(by.covers(one) for by in pod.tolerations)",
                by="operator drain",
            ),
        ),
        "elasticjob.rendezvous.reasons:why_reopened": (
            replace(
                "draining: a node that goes is told as a device",
                "all(one.unhealthy for one in replaced)",
                "any(one.unhealthy for one in replaced)",
                by="core transcripts",
            ),
        ),
        "elasticjob.reading.devices:_unhealthy": (
            replace(
                "draining: who has a device of unknown health goes",
                "body.get('health') == UNHEALTHY",
                "body.get('health') != 'Healthy'",
                by="operator drain",
            ),
        ),
        "elasticjob_operator.job.drain:drain_of": (
            omit("draining: devices count where the job says no", "devices", by="operator drain"),
            replace(
                "draining: an unhealthy device moves nobody", "devices and pod.unhealthy", "False", by="operator drain"
            ),
        ),
        "elasticjob_operator.job.evictions:still_there": (
            replace(
                "draining: the grace begins anew with each look",
                "known.get(pod_key, now)",
                "now",
                by="operator evictions",
            ),
        ),
        "elasticjob_operator.job.evictions:budget_of": (
            replace(
                "draining: the budget never opens",
                "Budget.OPEN if is_over else Budget.CLOSED",
                "Budget.CLOSED",
                by="operator evictions",
            ),
            omit("draining: there is a budget where no node is watched", "watched", by="operator evictions"),
        ),
        "elasticjob_operator.job.evictions:MinAvailable.following": (
            omit("draining: the budget falls at once", "now - self.since >= SETTLE_SECONDS", by="operator reconciler"),
            omit("draining: the budget grows after a while", "there >= self.pods", by="operator evictions"),
        ),
        "elasticjob_operator.actions.decided_pods:DecidedPods._give": (
            omit(
                "draining: a new leader lowers the budget at the second look",
                "self._evictions.resume(self._access.found, self._clock.now())",
                by="operator reconciler",
            ),
        ),
        "elasticjob_operator.actions.access:Access._with_its_own_number": (
            omit("draining: a number that is too low is kept", "number <= least", by="operator access"),
            omit("draining: a new leader opens no budget", "budget is not Budget.CLOSED", by="operator access"),
        ),
        "elasticjob_operator.job.evictions:_there": (
            omit("draining: pods that have ended keep the budget up", "pod.is_over", by="operator evictions"),
            omit("draining: the budget counts another job's pods", "pod.job_uid == uid", by="operator evictions"),
        ),
        "elasticjob_operator.job.drain:is_going": (
            replace(
                "draining: whose pods tolerate the taint are never evicted",
                "any(one.key in keys for one in taints)",
                "False",
                by="operator drain",
            ),
        ),
        "elasticjob_operator.job.observe:Observer._look": (
            omit("draining: a node's taints are read once", "known.node == node", by="operator drain"),
        ),
        "elasticjob_operator.cluster.reflector:Reflector.__init__": (
            replace(
                "draining: a leader begins before it knows the nodes",
                "((NODES, None),) if nodes else ()",
                "()",
                by="operator reconciler",
            ),
        ),
        "elasticjob_operator.actions.access:Access.give": (
            replace(
                "draining: the budget stays as it is until it is looked at again",
                "asked == self._asked",
                "asked[0] == self._asked[0]",
                by="operator access",
            ),
        ),
        "elasticjob_operator.cluster.cache:Cache._jobs_on": (
            replace(
                "draining: whoever changes a node wakes no job",
                "self._by_node.on(nodes)",
                "self._by_node.on(())",
                by="operator cache",
            ),
        ),
        "elasticjob_operator.cluster.cache:Cache.note_pod": (
            omit(
                "draining: a pod that was made since the listing is on no node",
                "self._by_node.move(key, _node_of(before), _node_of(view.pods.get(pod.name)))",
                by="operator cache",
            ),
        ),
        "elasticjob_operator.cluster.cache:Cache.replace_pods": (
            omit(
                "draining: a pod that a listing has taken away keeps its job on its node",
                'for node in before.get(key, ()): self._by_node.move(key, node, "")',
                by="operator cache",
            ),
        ),
    },
    by="core transcripts",
)
