# SPDX-License-Identifier: Apache-2.0
"""What one step of the rendezvous results in."""

from dataclasses import dataclass
from typing import NamedTuple

from elasticjob.rendezvous.model import PodKey, State


class Event(NamedTuple):
    """Something that a user should read on the ElasticJob: `reason` in one CamelCase word, `message` a sentence.

    `cause`: why a round ended or a worker was lost, in one word. `worker`: the index of the worker that it is about, if
    there is one.
    """

    reason: str
    message: str
    warning: bool = False
    cause: str = ""
    worker: int | None = None


class Failed(NamedTuple):
    """A pod that failed by its own fault or its node's. `judged`: its loss counts as a failure. Otherwise it ended the
    round, and it is judged with `State.failure`."""

    pod: PodKey
    judged: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """The next state, the time of the next step if nothing happens before, and the events for people.

    `formed_after`: seconds from the opening of a round to its formation, set only by the step that formed it. `failed`:
    the pods that this step found failed, for the bookkeeping about nodes; no rule reads it. `awaited`: the number of
    running workers whose joins the forming round waits for; 0 if none forms.
    """

    state: State
    wake_at: float | None = None
    events: tuple[Event, ...] = ()
    formed_after: float | None = None
    failed: tuple[Failed, ...] = ()
    awaited: int = 0
