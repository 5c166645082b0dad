"""Seeded mistakes for `mutants`: each is one wrong line, told in a sentence that says what goes wrong by it.

`old` has to occur exactly once in its file. `by` is the check that is tried first: one that is known to catch it.

Not here, as nothing can see a difference: `open_round` without `min_reached=None, all_running=None` (both are None in
every formed round); `_form` without `newcomer=None` (opening the round has done it); `has_changed` without its look at
the phase (a round that is forming has a number that no trainer holds).
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    mistake: str
    file: str
    old: str
    new: str
    by: str


DECIDE, BARRIER, LIMITS, LOSSES, ROSTER, MOVES = (
    f"core/elasticjob/rendezvous/{name}.py"
    for name in ("decide", "barrier", "limits", "losses", "roster", "transitions")
)
SIDECAR, VIEW, STATUS = (
    "sidecar/elasticjob_sidecar/membership.py",
    "sidecar/elasticjob_sidecar/view.py",
    "operator/elasticjob_operator/status.py",
)

MUTATIONS = (
    Mutation(
        "rules are still applied after the end",
        DECIDE,
        "        if step.state.ended:\n            break\n",
        "",
        "composed",
    ),
    Mutation(
        "nobody looks again when the join timeout has run out",
        DECIDE,
        "        moments += [clocks.all_running + spec.join_timeout] if clocks.all_running is not None else []\n",
        "",
        "operator",
    ),
    Mutation(
        "an exit with code 0 counts as finished while the job is suspended",
        DECIDE,
        "or worker.deleting or step.suspended:",
        "or worker.deleting:",
        "unit",
    ),
    Mutation(
        "a worker that falls silent before its first heartbeat is never lost",
        DECIDE,
        "        if member is None or worker.deleting or member.index in done:\n",
        "        if member is None or worker.heartbeat is None or worker.deleting or member.index in done:\n",
        "unit",
    ),
    Mutation(
        "the first heartbeat after a silence of all makes the others lost",
        DECIDE,
        "        beats = {member: Beat(beat.value, now) for member, beat in beats.items()}\n",
        "        pass\n",
        "unit",
    ),
    Mutation(
        "the replacement of a lost pod gets the same name",
        DECIDE,
        "        step.give_up(lost.index, lost.replacement)\n",
        "",
        "composed",
    ),
    Mutation(
        "excess workers are given up without being told to leave",
        DECIDE,
        "        if worker.member is not None:\n            step.set(leaving=",
        "        if worker.member is None:\n            step.set(leaving=",
        "composed",
    ),
    Mutation(
        "a victim that has gone is remembered for ever",
        DECIDE,
        "    leaving = tuple(member for member in step.state.leaving if member in present)\n",
        "    leaving = step.state.leaving\n",
        "composed",
    ),
    Mutation(
        "the job is Complete when the first member has finished",
        DECIDE,
        "    elif done.issuperset(member.index for member in state.participants) or _nobody_left(step):\n",
        "    elif done:\n",
        "composed",
    ),
    Mutation(
        "a job of which nobody else is wanted waits for its victims for ever",
        DECIDE,
        " or _nobody_left(step):",
        ":",
        "operator",
    ),
    Mutation(
        "a Close ends the formed round at once",
        DECIDE,
        "    if closers and state.phase is FORMED:\n",
        "    if False:\n",
        "composed",
    ),
    Mutation(
        "after a Close the job never fails",
        DECIDE,
        "        if gone.issuperset(member.index for member in state.participants):\n",
        "        if not state.participants:\n",
        "operator",
    ),
    Mutation(
        "a failure counts although a lost pod explains it",
        DECIDE,
        "    if explained(state, step.workers, step.lost):\n",
        "    if False:\n",
        "composed",
    ),
    Mutation(
        "a break is a failure although a lost pod explains it",
        DECIDE,
        "if one.counted is not innocent), broken[0])",
        "if one.counted), broken[0])",
        "unit",
    ),
    Mutation(
        "a round that is about to end is reopened for newcomers",
        DECIDE,
        "    if not newcomers or about_to_end:\n",
        "    if not newcomers:\n",
        "operator",
    ),
    Mutation(
        "members that come back count as newcomers",
        DECIDE,
        "    newcomers = [worker for worker in roster.joined if worker.member not in state.participants]\n",
        "    newcomers = list(roster.kept)\n",
        "composed",
    ),
    Mutation(
        "newcomers wait for one that never comes",
        DECIDE,
        "    if not arrived and now - since < last_call(step.spec, newcomers):\n",
        "    if not arrived:\n",
        "unit",
    ),
    Mutation(
        "the shortest last call of those that joined applies",
        LIMITS,
        "return max((seconds",
        "return min((seconds",
        "unit",
    ),
    Mutation(
        "how long a worker says that it may be silent is not looked at",
        LOSSES,
        "limits = {worker.member: worker_lost(spec, worker) for",
        "limits = {worker.member: spec.worker_lost for",
        "unit",
    ),
    Mutation(
        "a suspended job times out",
        DECIDE,
        "    if step.spec.suspend:  # it waits",
        "    if False:  # it waits",
        "operator",
    ),
    Mutation(
        "the budget of failures has no end",
        DECIDE,
        "    if restarts <= step.spec.max_restarts:\n",
        "    if True:\n",
        "operator",
    ),
    Mutation(
        "the store is the last rank's",
        DECIDE,
        "store=members[0].address)",
        "store=members[-1].address)",
        "composed",
    ),
    Mutation(
        "failures are forgotten while a round is forming",
        DECIDE,
        "    if step.state.phase is FORMED and step.state.restarts and held",
        "    if step.state.restarts and held",
        "operator",
    ),
    Mutation(
        "one more than the minimum is needed",
        BARRIER,
        "    if len(roster.joined) < least:\n",
        "    if len(roster.joined) <= least:\n",
        "composed",
    ),
    Mutation(
        "the last call starts anew at every look",
        BARRIER,
        "    since = now if state.clocks.min_reached is None else state.clocks.min_reached\n",
        "    since = now\n",
        "operator",
    ),
    Mutation(
        "a round forms without those that still stop their processes",
        BARRIER,
        " and not _awaited(spec, state, roster, now)):",
        "):",
        "unit",
    ),
    Mutation(
        "members that never come back are waited for without end",
        BARRIER,
        "    return bool(stopping) and now - state.clocks.opened < spec.rejoin\n",
        "    return bool(stopping)\n",
        "operator",
    ),
    Mutation(
        "ranks are given by index alone",
        BARRIER,
        "key=lambda w: (ranks.get(w.member, last) if w.member else last, w.index)",
        "key=lambda w: w.index",
        "composed",
    ),
    Mutation(
        "the join timeout runs without pods",
        BARRIER,
        "    if roster.owed or any(worker.pod is not PodState.RUNNING for worker in roster.missing):\n",
        "    if False:\n",
        "operator",
    ),
    Mutation(
        "the join timeout needs a moment more than it says",
        BARRIER,
        "    if now - since >= spec.join_timeout:\n",
        "    if now - since > spec.join_timeout:\n",
        "operator",
    ),
    Mutation(
        "silence that all share is held against each",
        LOSSES,
        " and (len(beats) == 1 or latest - beat.since >= SHARED_SILENCE)\n",
        "\n",
        "unit",
    ),
    Mutation(
        "a pod that vanished unseen is not lost",
        LOSSES,
        "            if member.index not in present and member.index not in done:\n",
        "            if False:\n",
        "composed",
    ),
    Mutation(
        "a finished worker is lost when its pod goes",
        LOSSES,
        "        if worker.index in done:\n            continue\n",
        "",
        "composed",
    ),
    Mutation(
        "a restarted sidecar is taken for the member that it was",
        LOSSES,
        "    if worker is None or worker.member != member:\n",
        "    if worker is None:\n",
        "unit",
    ),
    Mutation(
        "a leave does not break the round",
        LOSSES,
        "    if request.type is RequestType.LEAVE:\n        detail",
        "    if False:\n        detail",
        "composed",
    ),
    Mutation(
        "a join made before the round breaks it again",
        LOSSES,
        " or request.after < state.round:\n",
        " or request.after < state.round - 1:\n",
        "composed",
    ),
    Mutation(
        "records of pods that were given up count",
        ROSTER,
        "    return worker.replacement >= state.replacements.get(worker.index, 0)\n",
        "    return True\n",
        "composed",
    ),
    Mutation(
        "a worker that the kubelet holds back counts as joined",
        ROSTER,
        "        worker.pod not in STUCK | ENDED\n        and ",
        "        ",
        "operator",
    ),
    Mutation(
        "a join from before the last formed round counts",
        ROSTER,
        "        and request.after >= state.last_formed\n",
        "",
        "composed",
    ),
    Mutation(
        "the minimum does not fall with the finished",
        ROSTER,
        "    return max(1, spec.min_replicas - len(state.done))\n",
        "    return spec.min_replicas\n",
        "operator",
    ),
    Mutation(
        "finished workers leave their places to others",
        ROSTER,
        "max(0, spec.replicas - len(done))",
        "spec.replicas",
        "composed",
    ),
    Mutation(
        "at a scale-down members go before those that wait",
        ROSTER,
        "            ranks.get(worker.member, last) if worker.member else last,\n            not has",
        "            not has",
        "composed",
    ),
    Mutation(
        "a victim that does not go is never deleted",
        ROSTER,
        "            return overdue or worker.pod in STUCK | ENDED\n",
        "            return worker.pod in STUCK | ENDED\n",
        "operator",
    ),
    Mutation(
        "victims are deleted before they are told",
        ROSTER,
        "            return overdue or worker.pod in STUCK | ENDED\n",
        "            return True\n",
        "unit",
    ),
    Mutation(
        "pods of finished workers are deleted",
        ROSTER,
        "worker.pod not in ENDED and worker.index not in done)\n",
        "worker.pod not in ENDED)\n",
        "composed",
    ),
    Mutation(
        "a round that is broken keeps its number",
        MOVES,
        "    Move(FORMED, ROUND_BROKEN, FORMING, 1,",
        "    Move(FORMED, ROUND_BROKEN, FORMING, 0,",
        "composed",
    ),
    Mutation(
        "a new operator does not know who has finished",
        STATUS,
        "        finished=_members(agreed.finished),\n",
        "",
        "composed",
    ),
    Mutation(
        "a round is handed out while it is forming",
        SIDECAR,
        "job.phase is FORMED and self._rank is not None and",
        "self._rank is not None and",
        "composed",
    ),
    Mutation(
        "a round is handed out that was formed before the join",
        SIDECAR,
        "self._rank is not None and job.round > self._joined_after\n",
        "self._rank is not None\n",
        "composed",
    ),
    Mutation(
        "a join is not made again when a round was formed without it",
        SIDECAR,
        "        elif last_formed > self._joined_after:\n"
        "            self._announce(last_formed, Cause.RENEWED, waiter.limits)\n",
        "",
        "composed",
    ),
    Mutation(
        "a trainer that was killed in a round leaves no word",
        SIDECAR,
        "        if self.mode is Mode.HANDED:\n            self._leave(Cause.AGENT_LOST)\n        elif",
        "        if",
        "unit",
    ),
    Mutation(
        "a trainer's successor is handed the same round",
        SIDECAR,
        "waiter.after < self.handed.round == self.held:\n",
        "waiter.after < self.handed.round:\n",
        "unit",
    ),
    Mutation(
        "a new trainer's join is older than the round that its predecessor held",
        SIDECAR,
        "            self._announce(max(last_formed, waiter.after, before), waiter.cause, waiter.limits)\n",
        "            self._announce(waiter.after, waiter.cause, waiter.limits)\n",
        "composed",
    ),
    Mutation(
        "a Close is asked on after the rendezvous is closed",
        SIDECAR,
        "        if self._closing and (self.job is None or self.job.phase is not CLOSED):\n",
        "        if self._closing:\n",
        "unit",
    ),
    Mutation(
        "the successor of a victim is not told to leave",
        SIDECAR,
        "        return self.job is not None and self.me in self.job.leaving\n",
        "        return False\n",
        "composed",
    ),
    Mutation(
        "a trainer whose sidecar was restarted goes on in a round that is not its own",
        VIEW,
        "    return job.phase is RendezvousPhase.FORMED and not worker.in_round(held)\n",
        "    return False\n",
        "unit",
    ),
)
