# SPDX-License-Identifier: Apache-2.0
"""Sidecars and agents of one job over the simulated API server, in virtual time; a test plays operator and kubelet."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any

from elasticjob.api import API_VERSION, Member, Members
from elasticjob.certificates import der_of, fingerprint_of
from elasticjob.pods import SIDECAR
from elasticjob_torch.agent.settings import parse_settings
from elasticjob_torch.agent.state_machine import Steps
from elasticjob_torch.wire import Round
from simulation.agents import AgentStream
from simulation.api_server import ApiServer
from simulation.clocks import Clock
from simulation.containers import Plan, Sandbox
from simulation.loop import Process, VirtualLoop
from simulation.network import Network, Weather
from simulation.pipes import Internet
from simulation.plugin import VirtualAgent, VirtualCalls
from simulation.programs import RealPrograms
from simulation.sidecars import SidecarProgram

NAMESPACE, JOB, HOST, PORT = "ml", "job", "127.0.0.1", 27600
LONGEST_SECONDS = 1000.0  # of virtual time, for a whole test
Json = dict[str, Any]


class Scene:
    def __init__(self) -> None:
        self.loop, self.dice, self.weather = VirtualLoop(), Random(1), Weather()
        self.clock = Clock(self.loop, self.dice)
        self.server = ApiServer(self.loop, self.dice, self.clock)
        self.programs = RealPrograms()
        self.internet: Internet = Internet(self.loop, self.dice)
        self.programs._internet = self.internet
        body = {
            "apiVersion": API_VERSION,
            "kind": "ElasticJob",
            "spec": {"replicas": 2, "template": {"spec": {"containers": []}}},
        }
        meta = {"name": JOB, "namespace": NAMESPACE}
        self.uid = self.server.create("elasticjobs", {**body, "metadata": meta}, "people").body["metadata"]["uid"]

    def run(self, play: Callable[["Scene"], Coroutine[Any, Any, None]]) -> None:
        with self.programs.in_place(), self.clock.in_place():
            try:
                self.loop.run_until_complete(asyncio.wait_for(play(self), LONGEST_SECONDS))
            finally:
                self._bury()
        assert not self.loop.failures, self.loop.failures

    def _bury(self) -> None:
        """What is still under way ends here, and connections with it."""
        for task in asyncio.all_tasks(self.loop):
            if (work := task.get_coro()) is not None:
                with suppress(Exception):  # no loop runs any more
                    work.close()
        for program in list(self.internet._programs.values()):
            program.kill()

    def tell(self, phase: str, round: int, *members: "Pod", **more: Any) -> None:
        """The operator writes the job's status."""
        rendezvous: Json = {"phase": phase, "round": round, **more}
        rendezvous["participants"] = str(Members(pod.member for pod in members))
        if members and phase != "Forming":
            rendezvous |= {"worldSize": len(members), "store": members[0].store}
        self.server.change(
            "elasticjobs", NAMESPACE, JOB, lambda job: job.update(status={"rendezvous": rendezvous}), "op"
        )

    def note(self, text: str) -> None:
        """Something about the job changes that concerns nobody."""
        annotate = lambda job: job["metadata"].setdefault("annotations", {}).update(note=text)  # noqa: E731
        self.server.change("elasticjobs", NAMESPACE, JOB, annotate, "op")

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
        end = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < end, f"waited {seconds:g} s for {what}"
            await asyncio.sleep(0.05)

    async def form(self, round: int, *pods: "Pod", serve: bool = True) -> None:
        """All join, and hold the round, whose store the first one serves."""
        before = [pod.request for pod in pods]
        self.tell("Forming", round)
        joins = [pod.agent.do(pod.agent.machine.joining()) for pod in pods]

        def all_joined() -> bool:
            return all(pod.asks("Join") and pod.request != last for pod, last in zip(pods, before, strict=True))

        await self.until(all_joined, "the joins")
        self.tell("Formed", round, *pods)
        for pod, join in zip(pods, joins, strict=True):
            pod.agent.handed = await join
            assert pod.agent.handed.number == round
            pod.agent.machine.use(pod.agent.handed)
        if serve:
            await pods[0].agent.serve_store()


class Pod:
    """One worker: its record is named as its pod, which has the index."""

    def __init__(self, scene: Scene, index: int = 0) -> None:
        self.scene, self.index, self.name = scene, index, f"{JOB}-{index}-0"
        self.network = Network(scene.loop, scene.server, f"pod {self.name}", scene.dice, scene.weather)
        values = {
            "ELASTICJOB_JOB": JOB,
            "ELASTICJOB_JOB_UID": scene.uid,
            "ELASTICJOB_INDEX": str(index),
            "ELASTICJOB_BATCH": "0" * 7 + str(index),
            "ELASTICJOB_NAMESPACE": NAMESPACE,
            "ELASTICJOB_POD_NAME": self.name,
            "ELASTICJOB_POD_UID": f"uid-{index}",
            "ELASTICJOB_POD_IP": f"10.0.0.{index + 1}",
        }
        env = [{"name": name, "value": value} for name, value in values.items()]
        spec = {"containers": [{"name": SIDECAR, "env": env}]}
        place = (NAMESPACE, self.name, f"uid-{index}", values["ELASTICJOB_POD_IP"], "node")
        self.sandbox = Sandbox(scene.loop, scene.dice, self.network, *place, spec, Plan())
        self.agents = 0
        self.agent: Agent

    def start_sidecar(self) -> None:
        self.process = Process(self.scene.loop, f"{self.name}/sidecar")
        self.program: SidecarProgram = self.scene.programs.sidecar(self.sandbox)
        self.process.start(self.program.run())

    def start_agent(self) -> "Agent":
        self.agents += 1
        self.agent = Agent(self, f"trainer-{self.index}-{self.agents}")
        return self.agent

    async def start(self) -> "Agent":
        """Sidecar and agent, until they know each other."""
        self.start_sidecar()
        await self.scene.until(lambda: self.ready, "the sidecar")
        agent = self.start_agent()
        await agent.do(agent.machine.opening())
        await self.scene.until(agent.events.connected.is_set, "the stream")
        return agent

    @property
    def ready(self) -> bool:
        return self.program.sidecar is not None and self.program.sidecar.driver.ready

    @property
    def member(self) -> Member:
        return Member(self.index, self.program.id)

    @property
    def store(self) -> str:
        assert self.program.sidecar is not None
        certificate = self.program.sidecar.credentials.certificate
        return f"{self.sandbox.ip}:27601/{fingerprint_of(der_of(certificate))}"

    @property
    def record(self) -> Json:
        return self.scene.server.get("elasticworkers", NAMESPACE, self.name) or {}

    @property
    def request(self) -> Json:
        return self.record.get("spec", {}).get("request") or {}

    def asks(self, kind: str) -> bool:
        return bool(self.request.get("type") == kind)

    def spoil(self, change: Callable[[Json], None]) -> None:
        """Somebody writes to the record."""
        self.scene.server.change("elasticworkers", NAMESPACE, self.name, change, "people")


class Agent:
    """One torchrun: the plug-in's state machine and stream."""

    def __init__(self, pod: Pod, trainer: str) -> None:
        scene = pod.scene
        self.process = Process(scene.loop, trainer)
        self.silences = 0
        self.handed: Round
        self.views: list[Any] = []
        settings = parse_settings(f"{HOST}:{PORT}", scene.uid, {})

        class Events(AgentStream):
            def take(events, data: Any) -> None:  # noqa: N805
                super().take(data)
                self.views.append(events.view)

        self.events = Events(settings.address, trainer, container="1", script="train.py")
        self.events.silent = self._silent
        self.calls = VirtualCalls(settings.address, trainer, settings.sidecar_timeout)
        self.machine = VirtualAgent(settings, self.calls, self.events, scene.loop.time, asyncio.sleep)
        self.process.call(scene.internet.settle, pod.sandbox.ip)

    def do(self, steps: Steps[Any]) -> "asyncio.Task[Any]":
        return self.process.start(self.machine.go(steps))

    async def serve_store(self) -> None:
        """As rank 0 of the round that it was handed."""
        port = 30000 + self.handed.number
        await self.process.start(asyncio.get_running_loop().create_server(asyncio.Protocol, HOST, port))
        await self.do(self.machine.posting_store(self.handed, port))

    def _silent(self) -> None:
        self.silences += 1
