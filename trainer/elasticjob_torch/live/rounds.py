# SPDX-License-Identifier: Apache-2.0
"""Where a process learns of rounds: from its agent, or, outside an ElasticJob, from its environment alone."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from elasticjob_torch import wire
from elasticjob_torch.agent.messages import (
    SOCKET,
    Enter,
    Message,
    Over,
    Saves,
    Stop,
    Waits,
    from_variable,
    received,
    send,
)
from elasticjob_torch.environment import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

_CONNECT_SECONDS = 30.0
_NEXT_SECONDS = float(wire.LONGEST_SECONDS)  # as long as one join of the agent may wait


class NoNextRound(RuntimeError):
    """This process does not live on: it has to end, and comes back as a new one. The message says why."""


@dataclass(frozen=True)
class Place:
    """A process's place in a round: the round's number, its rank, the number of processes, and the store's address
    (empty where torch finds it by itself, and in a world of one). ``after_loss``: a member of the round before may have
    been lost."""

    round: int
    rank: int
    size: int
    host: str
    port: int
    after_loss: bool = False


class Rounds(Protocol):
    """The rounds of this process. All methods but `following` return at once."""

    lives: bool  # whether a next round may come: otherwise an error of the group ends the process

    def hear(self, heard: Callable[[], object]) -> None:
        """From now on call ``heard`` in another thread when the round in use is over, or is to be cut."""

    def is_over(self) -> bool:
        """Say whether the round in use is known to be over."""

    def is_cut(self) -> bool:
        """Say whether members of the round in use may be gone: what waits for them has to be ended."""

    def saves(self, saving: bool) -> None:
        """This process saves from now on, or no longer does."""

    def following(self) -> Place:
        """Say that this process is between two steps; return its place in the next round. Raises `NoNextRound`."""


def rounds_of(environment: MutableMapping[str, str]) -> Rounds:
    """Return where this process learns of rounds: from no agent if a torchrun below the job's has started it."""
    given = environment.get(SOCKET, "")
    return OfAgent(given, environment) if given and endpoint_of(environment) else Fixed(environment)


class Fixed:
    """The one round of a process that no ElasticJob's agent has started: torchrun's, or a world of one."""

    lives = False

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._entered = False

    def hear(self, heard: Callable[[], object]) -> None:
        """Nothing is ever heard."""

    def is_over(self) -> bool:
        return False

    def is_cut(self) -> bool:
        return False

    def saves(self, saving: bool) -> None:
        """There is nobody to tell."""

    def following(self) -> Place:
        if self._entered:
            raise NoNextRound("the group broke, and no ElasticJob forms another")
        self._entered = True
        rank, size = (
            int(self._environment.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"))
        )
        return Place(1, rank, size, "", 0)


class OfAgent:
    """The rounds that this process's agent enters. A thread reads what it sends. ``given``: the variable `SOCKET`.

    Each new round's variables (RANK, WORLD_SIZE, ...) are set in ``environment``.
    """

    lives = True

    def __init__(self, given: str, environment: MutableMapping[str, str]) -> None:
        self._environment = environment
        self._start, path = from_variable(given)
        self._local_rank = int(environment.get("LOCAL_RANK") or 0)
        self._round = self._over = self._cut = 0
        self._messages: queue.SimpleQueue[Enter | Stop] = queue.SimpleQueue()
        self._heard: Callable[[], object] = lambda: None
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_CONNECT_SECONDS)
        try:
            self._socket.connect(path)
        except OSError as error:
            raise NoNextRound(f"this process's agent does not answer at {path} ({error})") from None
        self._socket.settimeout(None)
        threading.Thread(target=self._listen, name="elasticjob-live", daemon=True).start()

    def hear(self, heard: Callable[[], object]) -> None:
        self._heard = heard

    def is_over(self) -> bool:
        return self._over >= self._round > 0

    def is_cut(self) -> bool:
        return self._cut >= self._round > 0

    def saves(self, saving: bool) -> None:
        self._say(Saves(start=self._start, local_rank=self._local_rank, saving=saving))

    def following(self) -> Place:
        self._say(Waits(start=self._start, local_rank=self._local_rank, round=self._round))
        try:
            message = self._messages.get(timeout=_NEXT_SECONDS)
        except queue.Empty:
            raise NoNextRound(
                f"waited {_NEXT_SECONDS:g} s for this process's agent to enter a round after round {self._round}"
            ) from None
        if isinstance(message, Stop):
            raise NoNextRound(message.reason)
        after_loss = self.is_cut()
        self._round = message.round
        self._environment.update(message.variables)
        given = message.variables
        rank, size = int(given["RANK"]), int(given["WORLD_SIZE"])
        return Place(message.round, rank, size, given["MASTER_ADDR"], int(given["MASTER_PORT"]), after_loss)

    def _say(self, what: Message) -> None:
        with contextlib.suppress(OSError):  # the agent is gone, which the thread tells
            send(self._socket, what)

    def _listen(self) -> None:
        why = "its agent has ended"
        try:
            for message in received(self._socket):
                if isinstance(message, Over):
                    self._over = max(self._over, message.round)
                    self._cut = max(self._cut, message.round if message.cut else 0)
                    self._heard()
                elif isinstance(message, (Enter, Stop)):
                    self._messages.put(message)
        except ValueError as error:
            why = str(error)
        self._messages.put(Stop(reason=why))
        self._over = self._cut = max(self._over, self._round)
        self._heard()
