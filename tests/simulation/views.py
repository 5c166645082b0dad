# SPDX-License-Identifier: Apache-2.0
"""What trainers were told, judged: by what the API server had at the time, and by the clock."""

from collections import defaultdict
from collections.abc import Callable
from math import inf
from typing import Any

from elasticjob.api import Member, Members, RequestCause
from elasticjob_torch.sidecar.client import TimedCall
from elasticjob_torch.wire import Round
from simulation.containers import Sandbox
from simulation.loop import Process
from simulation.progress import Progress
from simulation.store import Change, Object

CALL_MARGIN_SECONDS = 7.0  # a connection and a pause more than its deadlines name
TOLD_SECONDS = 100.0  # of a calm world: until a round's end is known to each member's agent
ANEW = ("TrainingHung", "Restarted")  # causes for which processes have to be new
GONE_SECONDS = 2.0  # until a sidecar knows that its trainer was killed


class Views:
    """`complain` takes each problem. Statuses are read as they are written, at the server."""

    def __init__(self) -> None:
        self.complain: Callable[[str], None] = print
        self.calm_since = inf
        self._formed: dict[
            tuple[str, int], tuple[Member, ...]
        ] = {}  # by the job's uid and the round: who has which rank
        self._held: defaultdict[tuple[str, int], dict[int, str]] = defaultdict(dict)
        self._over: dict[tuple[str, int], float] = {}  # since when a round is over
        self._finished: set[tuple[str, int]] = set()  # names of records, and the rounds of which they said Finish
        self._stages: dict[tuple[str, int], int] = {}  # by the job's uid and the round: of which stage it is
        self._anew: dict[str, int] = {}  # by the job's uid: the last round that was opened for new processes
        self.progress = Progress(lambda why: self.complain(why))
        self._failures: defaultdict[str, int] = defaultdict(int)  # by the job's uid: what may count as a restart
        self._agents: defaultdict[str, list[Process]] = defaultdict(list)  # by the job's uid
        self._restarts: dict[str, tuple[int, int]] = {}  # by the job's uid: of the last status, and of all

    def see(self, change: Change, now: float) -> None:
        if change.plural == "elasticworkers" and change.new is not None:
            self._check_success(change)
            request = change.new["spec"].get("request") or {}
            if request.get("type") == "Finish":
                self._finished.add((change.new["metadata"]["name"], request.get("round")))
        elif change.plural == "elasticjobs":
            self._see_job(change.body, now)

    def _check_success(self, change: Change) -> None:
        """A sidecar that is started anew does not take back what its trainer has said."""
        if change.old is None or change.new is None or change.by != f"pod {change.new['metadata']['name']}":
            return
        old, new = change.old["spec"], change.new["spec"]
        said, says = old.get("request") or {}, new.get("request") or {}
        owners = [body["metadata"].get("ownerReferences") for body in (change.old, change.new)]
        taken_back = not says or says.get("cause") == RequestCause.POD_STOPPING
        if said.get("type") == "Finish" and taken_back and old["id"] != new["id"] and owners[0] == owners[1]:
            name = change.new["metadata"]["name"]
            self.complain(f"the record of {name} said Finish, and a new sidecar has written {says.get('type')} over it")

    def _see_job(self, job: Object, now: float) -> None:
        agreed = job.get("status", {}).get("rendezvous", {})
        uid, round, phase = job["metadata"]["uid"], agreed.get("round", 1), agreed.get("phase", "Forming")
        if phase == "Formed":
            self._formed.setdefault((uid, round), tuple(Members.read(agreed.get("participants", ""))))
            self._stages.setdefault((uid, round), agreed.get("stage", 1))
        elif phase == "Forming":
            self._over.setdefault((uid, round - 1), now)
        self._anew[uid] = agreed.get("restartRound", 0)
        self.progress.see(job)
        self._check_restarts(job, uid)
        if phase == "Forming" and round == self._anew[uid] and agreed["cause"] not in ANEW:
            self.complain(f"round {round} was opened for new processes, and ended for {agreed['cause']}")

    def _check_restarts(self, job: Object, uid: str) -> None:
        """No restart is counted without a cause: no change of the group is one."""
        restarts = job.get("status", {}).get("restarts", 0)
        last, counted = self._restarts.get(uid, (0, 0))
        counted += max(0, restarts - last)
        self._restarts[uid] = restarts, counted
        causes = self._failures[uid] + sum(agent.dead for agent in self._agents[uid])
        if counted > causes:
            self.complain(f"job {job['metadata']['name']} has counted {counted} restarts, and {causes} trainers failed")

    def starts(self, job: str, agent: Process) -> None:
        self._agents[job].append(agent)

    def fails(self, job: str) -> None:
        """A trainer or its processes fail, or it ends."""
        self._failures[job] += 1

    def handed(self, job: str, who: str, me: Member, round: Round) -> None:
        """An agent was told of its round."""
        what = f"{who} was handed round {round.number} with rank {round.rank} of {round.world_size}"
        members = self._formed.get((job, round.number))
        if members is None:
            self.complain(f"{what}, which was never formed")
        elif round.rank >= len(members) or not _is_or_was(me, members[round.rank]):
            self.complain(f"{what}, but its members are {members}, and this is {me}")
        elif len(members) != round.world_size:
            self.complain(f"{what}, but it has {len(members)} members")
        elif round.stage != self._stages[job, round.number]:
            self.complain(f"{what} in stage {round.stage}, but it is of stage {self._stages[job, round.number]}")
        other = self._held[job, round.number].setdefault(round.rank, who)
        if other != who:
            self.complain(f"{what}, which {other} has")

    def lives_on(self, job: str, who: str, round: int) -> None:
        """An agent was handed a round for the processes that it has."""
        if round == self._anew.get(job):
            self.complain(f"{who} was handed round {round} for the processes that it has, and it needs new ones")

    def starts_anew(self, job: str, who: str, why: str) -> None:
        """An agent that would go on with the processes that it has is to start new ones."""
        if not self._anew.get(job):
            self.complain(f"{who} has to start new processes, and nothing has asked for that: {why}")

    def ended(self, call: TimedCall[Any], began: float, now: float, process: Process, who: str) -> None:
        """A call of the plug-in's has ended; its process may have been frozen meanwhile."""
        most = call.within + call.patience + CALL_MARGIN_SECONDS
        if now - began > most and process.woken_at < began:
            self.complain(f"{who}: {call.method} {call.target} took {now - began:.1f} s, more than {most:.1f}")

    def silent(self, who: str, listener: Process, pod: Sandbox, now: float) -> None:
        """A stream of the sidecar's was given up as silent."""
        sidecar = pod.files.get("sidecar")
        process = sidecar.process if sidecar is not None else None
        if (
            process is not None
            and process.runs
            and max(process.woken_at, listener.woken_at) < now - 60
            and sidecar.began < now - 60
        ):
            self.complain(f"{who}: the stream of a sidecar that runs fell silent")

    def success(self, who: str, pod: Sandbox, round: int) -> None:
        """An agent was told that its success is recorded."""
        if (pod.name, round) not in self._finished:
            self.complain(f"{who} was told that its finish of round {round} is recorded, and no record has said so")

    def trains_on(self, job: str, round: int, woken_at: float, now: float, who: str) -> None:
        """An agent looks whether its round goes on, and has heard nothing else."""
        over = self._over.get((job, round))
        if over is not None and now - max(over, woken_at, self.calm_since) > TOLD_SECONDS:
            self.complain(f"{who} is not told, after {now - over:.0f} s, that round {round} is over")

    def gone(self, who: str, trainer: str, pod: Sandbox, now: float) -> None:
        """A trainer was killed a moment ago."""
        sidecar = pod.files.get("sidecar")
        if sidecar is None or sidecar.sidecar is None or not sidecar.process.runs:
            return
        if sidecar.process.woken_at < now - GONE_SECONDS and sidecar.sidecar.driver._machine.trainer == trainer:
            self.complain(f"{who}: the sidecar has not noticed that its trainer was killed")


def _is_or_was(me: Member, member: Member) -> bool:
    """Whether `member` is this incarnation of the sidecar or one before it in its pod: an agent that stood still reads
    the answer of a sidecar that has been killed since."""
    (batch, _, now), (of, _, then) = me.id.partition("."), member.id.partition(".")
    return (member.index, of) == (me.index, batch) and int(then) <= int(now)
