# SPDX-License-Identifier: Apache-2.0
"""A process of many agents' rendezvous handlers, each in a thread of its own, as torch's agent uses them.

Knows no backend: torch makes the handlers from the same parameters that torchrun would give it.
"""

import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from elasticjob_torch import creator
from rounds.child import Answer, serve

POLL_SECONDS = 0.1  # of torch's agent
TOLD_SECONDS = 60.0
ROUND_SECONDS = 240.0  # also of the largest job, less than `child.ANSWER_SECONDS`
SIGN_SECONDS = 0.01


class Requests:
    """Counts what this process sends from now on, in any thread: connections and HTTP requests."""

    EVENTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg", "http.client.send"})

    def __init__(self) -> None:
        self.seen = 0
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: tuple[Any, ...]) -> None:
        if event in self.EVENTS:
            self.seen += 1


class Agent:
    """What torch's agent does with its handler between the starts of its training processes."""

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        self.name = name
        self._parameters = parameters
        self.handler: RendezvousHandler
        self.info: RendezvousInfo | None = None
        self.called = 0.0  # next_rendezvous(), the last time
        self.sign = Path()  # the file for which a late one waits

    def make(self) -> None:
        self.handler = get_rendezvous_handler(RendezvousParameters(**self._parameters))

    def rendezvous(self) -> float:
        """Return when it was done."""
        self.called = time.monotonic()
        self.info = self.handler.next_rendezvous()
        return time.monotonic()

    def rendezvous_late(self) -> float:
        limit = time.monotonic() + ROUND_SECONDS
        while not self.sign.exists():
            if time.monotonic() > limit:
                raise TimeoutError(f"agent {self.name} waited {ROUND_SECONDS:g} s for {self.sign}")
            time.sleep(SIGN_SECONDS)
        return self.rendezvous()

    def told(self) -> float:
        """Return when the agent's poll said that there is a change."""
        limit = time.monotonic() + TOLD_SECONDS
        while self.handler.num_nodes_waiting() == 0:
            if time.monotonic() > limit:
                raise TimeoutError(f"agent {self.name} was not told of the change within {TOLD_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        return time.monotonic()

    def again_when_told(self) -> float:
        self.told()
        return self.rendezvous()


class Handlers:
    def __init__(self) -> None:
        self._agents: dict[str, Agent] = {}
        self._pool = ThreadPoolExecutor(max_workers=2048)

    def make(self, agents: dict[str, dict[str, Any]], environment: dict[str, str]) -> None:
        """Agents by name, with torch's RendezvousParameters."""
        os.environ.update(environment)
        made = {name: Agent(name, parameters) for name, parameters in agents.items()}
        for future in [self._pool.submit(agent.make) for agent in made.values()]:
            future.result()
        self._agents |= made

    def together(self, sign: str = "", **agents: list[str]) -> Answer:
        """Agents by what they do, each in its thread, all at once: a method of `Agent` each. Late ones wait for a
        file `sign`.

        Answers when they began, when the last of them called next_rendezvous(), when each was done, and the rank and
        world size that it has then.
        """
        for agent in self._agents.values():
            agent.sign = Path(sign)
        began = time.monotonic()
        futures = {
            self._pool.submit(getattr(Agent, do), self._agents[name]): name
            for do, names in agents.items()
            for name in names
        }
        ended = {futures[future]: future.result() for future in as_completed(futures, ROUND_SECONDS)}
        infos = {name: self._agents[name].info for name in ended}
        ranks = {name: (info.rank, info.world_size) for name, info in infos.items() if info is not None}
        called = max(self._agents[name].called for name in ended)
        return {"began": began, "called": called, "ended": ended, "ranks": ranks}

    def polled(self, agents: list[str]) -> Answer:
        """When each was told of a change, by a poll that asks no other process, of all in one thread: a thousand that
        wake ten times a second would take a fifth of a core from what is measured."""
        ended, limit = dict[str, float](), time.monotonic() + TOLD_SECONDS
        while late := [name for name in agents if name not in ended]:
            if time.monotonic() > limit:
                raise TimeoutError(f"agent {late[0]} was not told of the change within {TOLD_SECONDS:g} s")
            told = [name for name in late if self._agents[name].handler.num_nodes_waiting()]
            ended |= dict.fromkeys(told, time.monotonic())
            time.sleep(POLL_SECONDS)
        return {"ended": ended}

    def vanish(self, agent: str) -> Answer:
        """An agent is gone without a word: its connections end, and nobody says why."""
        gone = self._agents.pop(agent)
        began = time.monotonic()
        gone.handler._membership._events.stop()  # type: ignore[attr-defined]
        return {"began": began}

    def poll_cost(self, calls: int = 10_000) -> Answer:
        """What one num_nodes_waiting() takes: its seconds, and the requests that this process makes meanwhile."""
        handler = next(iter(self._agents.values())).handler
        began = time.perf_counter()
        for _ in range(calls):
            handler.num_nodes_waiting()
        seconds = (time.perf_counter() - began) / calls
        requests = Requests()
        for _ in range(calls):
            handler.num_nodes_waiting()
        polled = requests.seen
        handler._membership._client.view()  # type: ignore[attr-defined]
        if requests.seen == polled:
            raise RuntimeError("a request to the sidecar was not seen: polls would not be seen either")
        return {"seconds": seconds, "requests": polled / calls}

    def shutdown(self) -> None:
        """All leave; torch's own handler closes its rendezvous."""
        for future in [self._pool.submit(agent.handler.shutdown) for agent in self._agents.values()]:
            future.result()
        self._agents.clear()


def main() -> None:
    logging.disable(logging.WARNING)
    rendezvous_handler_registry.register("elasticjob", creator())  # as its entry point does in an image
    threading.stack_size(256 * 1024)  # thousands of them
    sys.setswitchinterval(3600)  # or each thread that waits for the interpreter wakes once in it, thousands at once
    handlers = Handlers()
    names = ("make", "together", "polled", "vanish", "poll_cost", "shutdown")
    serve({name: getattr(handlers, name) for name in names})


if __name__ == "__main__":
    main()
