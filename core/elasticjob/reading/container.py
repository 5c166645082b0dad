# SPDX-License-Identifier: Apache-2.0
"""The state of a container, as the kubelet reports it."""

from dataclasses import dataclass
from typing import Literal

from elasticjob.objects import Object
from elasticjob.pods import (
    CONFIG_WORDS,
    IMAGE_WORDS,
    NEVER_RAN,
    NO_PLUGIN,
    NO_SHELL,
    NOT_REGISTERED,
    NOTHING_LEFT,
    SHELL_NOT_FOUND,
    START_WORDS,
    UNFIT,
)
from elasticjob.reading.shared import sentence, shared, word
from elasticjob.text import printable

State = Literal["", "waiting", "running", "terminated"]
Fault = Literal["image", "reference", "container"]  # what a user has to change before the kubelet can start it
STATES: tuple[State, ...] = ("running", "terminated", "waiting")  # a container is in one of them


@dataclass(frozen=True, slots=True)
class Termination:
    """How a container ended. `message`: the last line of its termination message. Messages about a missing plug-in or
    shell are replaced by their meaning."""

    code: int
    reason: str = "Error"
    message: str = ""

    @classmethod
    def read(cls, body: Object) -> "Termination":
        code, message = body.get("exitCode", 0), body.get("message") or ""
        message = NO_PLUGIN if code and NOT_REGISTERED in message else _last_line(_without_shell(message))
        return shared(cls(code, word(body.get("reason", "Error")), message))

    @property
    def summary(self) -> str:
        """`exit code 1: the last line of its message`, with the reason if that is more specific than `Error`."""
        code = f"exit code {self.code}" + ("" if self.reason in ("Error", "Completed") else f", {self.reason}")
        return f"{code}: {self.message}" if self.message else code


@dataclass(frozen=True, slots=True)
class Container:
    """`state`: empty before the kubelet has reported one. `reason`, `message`: why it waits, else empty. `since`: when
    it started to run, in RFC 3339, empty if it does not run. `ended`: how it ended, if it has. `ended_before`: how its
    previous run ended, if it was restarted."""

    name: str
    is_init: bool = False
    image: str = ""
    state: State = ""
    reason: str = ""
    message: str = ""
    since: str = ""
    restarts: int = 0
    started: bool = False
    ready: bool | None = None
    ended: Termination | None = None
    ended_before: Termination | None = None

    @classmethod
    def read(cls, body: Object, *, is_init: bool) -> "Container":
        states, last = body.get("state") or {}, (body.get("lastState") or {}).get("terminated")
        state: State = next((one for one in STATES if one in states), "")
        details: Object = states.get(state) or {}
        waits = state == "waiting"
        found = cls(
            name=word(body["name"]),
            is_init=is_init,
            image=word(body.get("image")),
            state=state,
            reason=word(details.get("reason")) if waits else "",
            message=sentence(_without_shell(details.get("message") or "")) if waits else "",
            since=details.get("startedAt") or "" if state == "running" else "",
            restarts=body.get("restartCount", 0),
            started=bool(body.get("started")),
            ready=body.get("ready"),
            ended=Termination.read(details) if state == "terminated" else None,
            ended_before=Termination.read(last) if last else None,
        )
        return shared(found)

    @property
    def waits(self) -> bool:
        return self.state == "waiting"

    @property
    def fault(self) -> Fault | None:
        """Why it waits, if waiting does not help."""
        if self.reason in IMAGE_WORDS:
            return "image"
        if self.reason in START_WORDS or (self.reason in CONFIG_WORDS and UNFIT.search(self.message)):
            return "container"
        return "reference" if self.reason in CONFIG_WORDS else None

    @property
    def runs(self) -> bool:
        return self.state == "running"

    @property
    def has_started(self) -> bool:
        return self.state in ("running", "terminated")

    @property
    def last_end(self) -> Termination | None:
        """Its latest end, of this run or the previous one."""
        return self.ended or self.ended_before

    @property
    def crashed_before(self) -> Termination | None:
        """`ended_before`, except for a start that failed on the node's side and was retried: then the command did not
        crash."""
        end = self.ended_before
        return None if self.runs and end is not None and end.reason in NEVER_RAN else end


ABSENT = Container("")  # a container that the kubelet has not reported yet


def _without_shell(message: str) -> str:
    return NO_SHELL if SHELL_NOT_FOUND.search(message) else message


def _last_line(message: str) -> str:
    lines = [shown for line in message.splitlines() if (shown := printable(line).strip())]
    return sentence(lines[-1]) if lines and not lines[-1].startswith(NOTHING_LEFT) else ""
