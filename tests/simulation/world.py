# SPDX-License-Identifier: Apache-2.0
"""Everything of one seed: the API server, nodes, operators and jobs, on one loop and one pair of dice."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from elasticjob_operator.cluster.leader import DURATION_SECONDS, SHORTEST_SECONDS
from simulation.api_server import ApiServer
from simulation.clocks import Clock
from simulation.containers import Plan, Programs
from simulation.garbage import GarbageCollector
from simulation.loop import PROCESS, START_SECONDS, VirtualLoop
from simulation.network import Network, Weather
from simulation.nodes import Nodes
from simulation.operators import LEASE, Operator, simulated
from simulation.store import Change, Object

NAMESPACE = "ml"


@dataclass(slots=True)
class History:
    """What happened, a line each: seconds, who, what."""

    lines: list[str] = field(default_factory=list)

    def add(self, now: float, who: str, what: str, detail: str = "") -> None:
        self.lines.append(f"{now - START_SECONDS:9.3f}  {who:24} {what}{': ' if detail else ''}{detail}")


class World:
    def __init__(self, seed: int, programs: Programs) -> None:
        self.seed, self.dice = seed, Random(seed)
        self.loop = VirtualLoop()
        self.clock = Clock(self.loop, self.dice)
        self.history = History()
        self.weather = Weather()
        self.server = ApiServer(self.loop, self.dice, self.clock)
        self.garbage = GarbageCollector(self.loop, self.server, self.dice)
        self.plans: dict[str, Plan] = {}  # by the job's name
        self.adds_features: Callable[[Random, Object, Plan], None] = lambda dice, job, plan: None  # to a new job
        self.networks: list[Network] = []
        self.on_mistake: Callable[[str], None] = lambda why: None
        self.operators: list[Operator] = []
        self.nodes = Nodes(
            self.loop,
            self.server,
            self.dice,
            programs,
            self.network,
            self._plan_of,
            self.say,
            self._on_crash,
        )
        self.server.store.observers.append(self._see)
        self._job_names: dict[str, str] = {}

    def network(self, client: str) -> Network:
        found = Network(self.loop, self.server, client, self.dice, self.weather)
        self.networks.append(found)
        return found

    def say(self, who: str, what: str, detail: str = "") -> None:
        self.history.add(self.loop.time(), who, what, detail)

    def add_nodes(self, count: int, capacity: int) -> None:
        for number in range(count):
            self.nodes.add_node(f"node-{number}", capacity, self.dice.uniform(-2, 2))

    def start_operator(self, identity: str, *, network_policy: bool = False, lease: str = LEASE) -> Operator:
        """A start of the operator's container in the pod `identity`; another `lease` is another installation's."""
        starts = sum(one.identity == identity for one in self.operators)
        network = self.network(f"{identity}.{starts}")
        seconds = self.dice.choice((SHORTEST_SECONDS, DURATION_SECONDS))
        skew = self.dice.uniform(-2, 2)
        operator = Operator(
            self.loop, identity, network, skew, network_policy=network_policy, lease=lease, lease_seconds=seconds
        )
        self.operators.append(operator)
        self.say(identity, "starts", f"network policy {network_policy}, lease of {seconds} s")
        operator.start()
        return operator

    @contextmanager
    def running(self) -> Iterator[None]:
        """The world's clock and dice are those of the product meanwhile, and what it logs is in the history."""
        handler = _Log(self)
        loggers = [logging.getLogger(name) for name in ("elasticjob_operator", "elasticjob_sidecar")]
        known = [(one, one.level, one.propagate) for one in loggers]
        for one in loggers:
            one.addHandler(handler)
            one.setLevel(logging.INFO)
            one.propagate = False
        asyncio.set_event_loop(self.loop)
        try:
            with self.clock.in_place(), simulated(self.operators, self.nodes.trouble_of):
                yield
        finally:
            handler.setLevel(logging.CRITICAL + 1)
            self._bury()
            asyncio.set_event_loop(None)
            for one, level, propagate in known:
                one.removeHandler(handler)
                one.setLevel(level)
                one.propagate = propagate

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def _bury(self) -> None:
        """What is still under way ends here, not when its memory is freed."""
        for task in asyncio.all_tasks(self.loop):
            work = task.get_coro()
            with suppress(Exception):  # no loop runs any more, and something in it may wait even at its end
                if work is not None:
                    work.close()

    def _plan_of(self, uid: str) -> Plan:
        return self.plans.get(self._job_names.get(uid, ""), Plan())

    def _see(self, change: Change) -> None:
        if change.plural == "elasticjobs":
            self._job_names[change.body["metadata"]["uid"]] = change.body["metadata"]["name"]
        self.say(change.by, f"{change.type} {change.plural}/{change.body['metadata']['name']}", summary(change))

    def _on_crash(self, who: str, error: BaseException) -> None:
        self.say(who, "crashes", f"{type(error).__name__}: {error}")
        where = traceback.extract_tb(error.__traceback__)[-1]
        self.on_mistake(f"{who} crashed: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})")


class _Log(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        self._world.say(process.name if process else "", record.levelname.lower(), record.getMessage())


def summary(change: Change) -> str:
    """What is worth a line of a stored object."""
    body = change.body
    meta = body["metadata"]
    going = " deleting" if "deletionTimestamp" in meta else ""
    if change.plural == "elasticjobs":
        status = body.get("status", {})
        agreed = status.get("rendezvous", {})
        parts = (
            f"term {status.get('term', 0)} round {agreed.get('round', 0)} {agreed.get('phase', '')}",
            f"[{agreed.get('participants', '')}]",
            *(f"{key} {value}" for key in ("leaving", "finished", "failure") if (value := agreed.get(key))),
            f"replacements {status.get('replacements', '')}",
            f"{status.get('phase', '')} {status.get('reason', '')}",
            f"wants {body['spec']['replicas']}{' suspended' if body['spec'].get('suspend') else ''}",
        )
        return "; ".join(parts) + going
    if change.plural == "pods":
        status = body.get("status", {})
        containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
        states = (_state(one) for one in containers)
        return f"{status.get('phase', '')} on {body['spec'].get('nodeName', '-')} {' '.join(states)}{going}"
    if change.plural == "elasticworkers":
        request = body["spec"].get("request") or {}
        return f"{body['spec']['id']} beat {body.get('status', {}).get('heartbeat')} {_words(request)}{going}"
    if change.plural == "leases":
        return f"{body['spec'].get('holderIdentity')} term {body['spec'].get('leaseTransitions')}"
    return going.strip()


def _state(container: Object) -> str:
    state = container["state"]
    kind = next(iter(state))
    more = {"terminated": "exitCode", "waiting": "reason"}.get(kind, "")
    return f"{container['name']}={kind}" + (f"({state[kind].get(more)})" if more else "")


def _words(request: Object) -> str:
    return " ".join(f"{value}" for value in request.values() if value is not None)
