# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes for `mutants`, of who is doubted, who is asked, and who is lost for want of an answer."""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob.rendezvous.challenges:noted": (
            replace(
                "an answer to an earlier challenge counts",
                "present[member].answer >= asked.number",
                "present[member].answer > 0",
            ),
            replace(
                "clocks run from the question, and not from the first answer", "counting=now", "counting=asked.since"
            ),
            replace(
                "silence that all share is held against each",
                "asked.counting is None and another",
                "asked.counting is None",
            ),
            replace(
                "a new operator forgets who was asked",
                "{one: Asked(state.challenge, now, silent=one in silent) for one in state.challenged}",
                "{}",
            ),
            omit("a new operator has forgotten whose line was silent", "silent=one in silent"),
        ),
        "elasticjob.rendezvous.challenges:able": (
            omit("who has ended is lost for its silence", "worker.pod in ENDED"),
        ),
        "elasticjob.rendezvous.challenges:to_ask": (
            omit("who is doubted is asked alone", "_controls(present, suspects, fresh)"),
            omit("who may have been lost with rank 0 is not asked with it", "chosen = set(present)"),
            omit("rank 0's doubt asks all of a large group", "len(present) <= FEW"),
            omit("a line to rank 0 that stays broken asks all each time", "questions.keys()"),
            replace(
                "where nobody answers nobody else is asked",
                "Challenge(everybody, anew=True) if set(everybody) != set(state.challenged) else None",
                "None",
            ),
            replace(
                "while nobody answers everybody is asked in each step",
                "Challenge(everybody, anew=True) if set(everybody) != set(state.challenged) else None",
                "Challenge(everybody, anew=True)",
            ),
            replace("each doubt that stands is asked about by a challenge of its own", "... / 2", "..."),
        ),
        "elasticjob.rendezvous.challenges:_is_due": (
            omit(
                "a doubt that stands is asked about once",
                "asked.answered is not None and now - asked.answered >= again",
            ),
            omit("a doubt that stands is asked about in each step", "now - asked.answered >= again"),
        ),
        "elasticjob.rendezvous.challenges:asked_by": (
            replace(
                "a later doubt puts off an earlier loss",
                "challenge.anew or not is_open or state.challenged == (member,)",
                "True",
            ),
            omit(
                "who was asked alone and is asked with others has waited for long already",
                "state.challenged == (member,)",
            ),
        ),
        "elasticjob.rendezvous.challenges:_runs_from": (
            replace(
                "clocks run before all hear the API server again",
                "max(asked.counting, state.clocks.settled)",
                "asked.counting",
            ),
        ),
        "elasticjob.rendezvous.challenges:doubted": (
            omit(
                "a node that the cluster does not hear of makes no doubt",
                "found |= {member for member, worker in present.items() if worker.unready}",
            ),
        ),
        "elasticjob.rendezvous.challenges:_patience": (
            omit("who does not join again is not asked before its time is over", "few"),
            replace("who is late after a silent loss is asked as late as after any other", "few or silently", "few"),
            replace(
                "those of whom nobody has heard, as rank 0 was lost, are asked only once they are late",
                "return 0.0",
                "return spec.worker_lost",
            ),
        ),
        "elasticjob.rendezvous.challenges:moments": (
            replace(
                "nobody looks again when the time of proof is over",
                "yield _runs_from(state, asked) + proof(spec, present[member], asked)",
                "continue",
            ),
            replace("nobody looks again where nobody has answered", "yield asked.since + AGAIN_SECONDS", "continue"),
        ),
        "elasticjob.rendezvous.limits:proof": (
            replace("who is asked alone has no more time than among others", "asked.alone", "False"),
            omit("who is asked beside the doubted has no more time than they", "asked.silent"),
            omit("who has answered before has no more time than at first", "asked.lived is None"),
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
            omit("a challenge waits as counters do", "agreed.challenge", by="operator pace"),
        ),
        "elasticjob_operator.cluster.cache:_words": (
            omit("an answer is no news", "said.status.answer", by="operator cache"),
        ),
    },
    by="unit",
)
