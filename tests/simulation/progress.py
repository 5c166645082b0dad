# SPDX-License-Identifier: Apache-2.0
"""How far the training processes that live through changes are, and the judgement that nothing is lost with them.

All members of a group have the state of the one that has trained furthest. So no group may train on from less than a
process has that could have come into it: then steps were done again that nobody had to do. Into a group that has all
its workers none can come: the place of a worker whose sidecar was restarted is a spare's at once.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from elasticjob.api import ElasticJobStatus
from elasticjob.pods import pod_name
from simulation.store import Object


class Standing(NamedTuple):
    """The last round in which a process had the state of all, 0 for a newcomer, and how many steps it has done."""

    round: int
    step: int


class Processes(NamedTuple):
    """Those of one worker. `standing`: None while they cannot come into a round."""

    index: int
    pod: str
    standing: Callable[[], Standing | None]


class Progress:
    """The processes of all jobs. `complain` takes each problem."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._alive: defaultdict[tuple[str, int], dict[object, Processes]] = defaultdict(dict)  # by job and stage
        self._jobs: dict[str, Object] = {}  # by their uids

    def see(self, job: Object) -> None:
        self._jobs[job["metadata"]["uid"]] = job

    def started(self, job: str, stage: int, key: object, one: Processes) -> None:
        self._alive[job, stage][key] = one

    def ended(self, job: str, stage: int, key: object) -> None:
        self._alive[job, stage].pop(key, None)

    def begins(self, job: str, stage: int, number: int, best: Standing) -> None:
        """The group of a round trains, from the state of its member that has trained furthest."""
        body = self._jobs[job]
        status = ElasticJobStatus.parse(body["status"])
        agreed = status.rendezvous
        done = {member.index for member in (*agreed.finished, *agreed.finishing)}
        if agreed.round == number and len(agreed.participants) + len(done) >= agreed.replicas:
            return
        leaving = {member.index for member in agreed.leaving}
        for one in self._alive[job, stage].values():
            pod = pod_name(body["metadata"]["name"], one.index, status.replacements.get(one.index, 0))
            has = one.standing()
            if one.pod != pod or one.index in leaving or has is None or not agreed.restart_round <= has.round < number:
                continue
            if has.round > best.round or (has.round == best.round and has.step > best.step + 1):
                self._complain(
                    f"round {number} trains on from step {best.step} of round {best.round}, and the processes of "
                    f"{one.pod} have done {has.step} steps, in round {has.round}"
                )
