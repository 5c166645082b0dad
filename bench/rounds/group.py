# SPDX-License-Identifier: Apache-2.0
"""A group of agents, spread over processes of handlers, and what it is asked to do together."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rounds.child import Answer, Child


class Group:
    def __init__(self, processes: list[Child]) -> None:
        self._processes = processes
        self._home: dict[str, Child] = {}

    def make(self, agents: dict[str, dict[str, Any]], environment: dict[str, str] | None = None) -> None:
        """Agents by name, with torch's RendezvousParameters; `environment` is what torch reads besides."""
        shares: dict[Child, dict[str, dict[str, Any]]] = {}
        for number, (name, parameters) in enumerate(agents.items()):
            home = self._home[name] = self._processes[(len(self._home) + number) % len(self._processes)]
            shares.setdefault(home, {})[name] = parameters
        for home, share in shares.items():
            home.tell("make", agents=share, environment=environment or {})
        for home in shares:
            home.answer()

    def rendezvous(self) -> float:
        """Seconds from the first agent's call until the last one has its round."""
        answer = self.rendezvous_of_all()
        return _last(answer) - float(answer["began"])

    def rendezvous_after(self, sign: Path) -> float:
        """One agent calls when there is a file `sign`, after the others. Seconds from its call until the last one has
        its round."""
        *others, straggler = self._home
        answer = self._together(str(sign), rendezvous=others, rendezvous_late=[straggler])
        self._check(answer)
        return _last(answer) - float(answer["called"])

    def rendezvous_of_all(self) -> Answer:
        """When it began, and when each agent had its round; checks that they agree."""
        answer = self._together(rendezvous=list(self._home))
        self._check(answer)
        return answer

    def grow(self, newcomer: str) -> float:
        """Seconds from the newcomer's join until all, told by their polls, have the round with it."""
        others = [name for name in self._home if name != newcomer]
        answer = self._together(rendezvous=[newcomer], again_when_told=others)
        self._check(answer)
        return _last(answer) - float(answer["began"])

    def lose(self, name: str) -> float:
        """Seconds from the end of one agent, without a word, until all others are told by their polls."""
        gone = self._home.pop(name).ask("vanish", agent=name)
        return _last(self._together(told=list(self._home))) - float(gone["began"])

    def told_without(self, silent: str) -> float:
        """Seconds from now until all but one are told of a change by their polls."""
        began, shares = time.monotonic(), self._by_home(name for name in self._home if name != silent)
        for home, names in shares.items():
            home.tell("polled", agents=names)
        return max(_last(home.answer()) for home in shares) - began

    def shutdown(self) -> None:
        for process in self._processes:
            process.tell("shutdown")
        for process in self._processes:
            process.answer()
        self._home.clear()

    def _together(self, sign: str = "", **agents: list[str]) -> Answer:
        """Agents by what they do, see `Handlers.together`, in all processes at once."""
        shares: dict[Child, dict[str, list[str]]] = {}
        for do, names in agents.items():
            for home, share in self._by_home(names).items():
                shares.setdefault(home, {})[do] = share
        for home, asked in shares.items():
            home.tell("together", sign=sign, **asked)
        answers = [home.answer() for home in shares]
        return {
            "began": min(answer["began"] for answer in answers),
            "called": max(answer["called"] for answer in answers),
            "ended": {name: at for answer in answers for name, at in answer["ended"].items()},
            "ranks": {name: place for answer in answers for name, place in answer["ranks"].items()},
        }

    def _by_home(self, names: Iterable[str]) -> dict[Child, list[str]]:
        shares: dict[Child, list[str]] = {}
        for name in names:
            shares.setdefault(self._home[name], []).append(name)
        return shares

    def _check(self, answer: Answer) -> None:
        size = len(self._home)
        places = sorted(tuple(place) for place in answer["ranks"].values())
        if places != [(rank, size) for rank in range(size)]:
            raise RuntimeError(f"{size} agents have the ranks and world sizes {places}")


def _last(answer: Answer) -> float:
    return float(max(answer["ended"].values()))
