# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes for `mutants`, in the failure detector: suspicions, pings and acks."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.failure_detector:with_acks": (
            replace(
                "an ack of an earlier ping counts",
                "present[member].ack >= pinged.number",
                "present[member].ack > 0",
            ),
            replace("clocks run from the ping, and not from the first ack", "counting=now", "counting=pinged.since"),
            replace(
                "silence that all share is held against each",
                "pinged.counting is None and another",
                "pinged.counting is None",
            ),
            replace(
                "a new operator forgets open pings",
                "{one: Pinged(state.ping, now, unheard=one in unheard) for one in state.pinged}",
                "{}",
            ),
            omit("a new operator has forgotten whose link was silent", "unheard=one in unheard"),
        ),
        "elasticjob.rendezvous.failure_detector:able": (
            omit("who has ended is lost for its silence", "worker.pod in ENDED"),
        ),
        "elasticjob.rendezvous.failure_detector:to_ping": (
            omit("suspected workers are pinged without witnesses", "_witnesses(present, suspects, fresh)"),
            omit("a worker that may be lost with rank 0 is not pinged with it", "chosen = set(present)"),
            omit("a suspicion of rank 0 pings all of a large group", "len(present) <= FEW"),
            omit("a link to rank 0 that stays broken pings all each time", "pings.keys()"),
            replace(
                "if nobody acks nobody else is pinged",
                "PingTargets(everybody, anew=True) if set(everybody) != set(state.pinged) else None",
                "None",
            ),
            replace(
                "while nobody acks everybody is pinged in each step",
                "PingTargets(everybody, anew=True) if set(everybody) != set(state.pinged) else None",
                "PingTargets(everybody, anew=True)",
            ),
            replace("each suspicion that stands makes a ping of its own", "... / 2", "..."),
        ),
        "elasticjob.rendezvous.failure_detector:_is_due": (
            omit(
                "a suspicion that stands makes one ping",
                "pinged.acked is not None and now - pinged.acked >= again",
            ),
            omit("a suspicion that stands makes a ping in each step", "now - pinged.acked >= again"),
        ),
        "elasticjob.rendezvous.failure_detector:pinged_by": (
            replace(
                "a later suspicion puts off an earlier loss",
                "ping.anew or not is_open or state.pinged == (member,)",
                "True",
            ),
            omit(
                "a worker pinged alone, and then with others, has used up its time",
                "state.pinged == (member,)",
            ),
        ),
        "elasticjob.rendezvous.failure_detector:_runs_from": (
            replace(
                "clocks run before all hear the API server again",
                "max(pinged.counting, state.clocks.settled)",
                "pinged.counting",
            ),
        ),
        "elasticjob.rendezvous.failure_detector:suspected": (
            omit(
                "a node that the cluster does not hear of makes no suspicion",
                "found |= {member for member, worker in present.items() if worker.unready}",
            ),
        ),
        "elasticjob.rendezvous.failure_detector:_patience": (
            omit("a late worker is not pinged before its time is over", "few"),
            replace("after an unacked loss late workers are pinged late too", "few or unacked", "few"),
            replace(
                "workers unheard since rank 0 was lost are pinged only once they are late",
                "return 0.0",
                "return spec.worker_lost",
            ),
        ),
        "elasticjob.rendezvous.failure_detector:moments": (
            replace(
                "nobody looks again when the time for an ack is over",
                "yield _runs_from(state, pinged) + ack_limit(spec, present[member], pinged)",
                "continue",
            ),
            replace("nobody looks again if nobody has acked", "yield pinged.since + AGAIN_SECONDS", "continue"),
        ),
        "elasticjob.rendezvous.limits:ack_limit": (
            replace("a worker pinged alone has no more time than among others", "pinged.alone", "False"),
            omit("a witness has no more time than a suspect", "pinged.unheard"),
            omit("a worker that has acked before has no more time than at first", "pinged.lived is None"),
        ),
        "elasticjob_operator.cluster.leader:LeaseClock.tick": (
            omit(
                "the time counts in which the operator stood still",
                "self._stood_still += now - self._ticked",
                by="operator leader",
            ),
        ),
        "elasticjob_operator.cluster.leader:LeaseClock.renewed": (
            omit(
                "an API server that was away is taken to be heard by all at once",
                "self.settled = self.now() + SETTLE_SECONDS",
                by="operator leader",
            ),
        ),
        "elasticjob_operator.job.pace:_essence": (
            omit("a ping waits as counters do", "agreed.ping", by="operator pace"),
        ),
        "elasticjob_operator.cluster.cache:_words": (
            omit("an ack is no update", "said.status.ack", by="operator cache"),
        ),
    },
    by="unit",
)
