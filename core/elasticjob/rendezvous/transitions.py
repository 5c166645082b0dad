# SPDX-License-Identifier: Apache-2.0
"""The moves of the rendezvous between phases, as one table. `decide` says when; no other code changes the phase.

`make docs` writes the table into docs/protocol.md.
"""

from dataclasses import replace
from typing import NamedTuple

from elasticjob.rendezvous.model import State
from elasticjob.terms import Outcome, RendezvousPhase

FORMING, FORMED, CLOSED = RendezvousPhase
ROUND_FORMED, ROUND_BROKEN, ROUND_REOPENED = "RoundFormed", "RoundBroken", "RoundReopened"
STAGE_FINISHED = "StageFinished"


class Move(NamedTuple):
    """From `source` to `target` by `event`, the word that people read. `opens` is added to the round's number."""

    source: RendezvousPhase
    event: str
    target: RendezvousPhase
    opens: int
    when: str


MOVES = (
    Move(FORMING, ROUND_FORMED, FORMED, 0, "at least the minimum has joined, and no other worker is awaited"),
    Move(
        FORMING,
        Outcome.TIMEOUT,
        CLOSED,
        0,
        "the minimum has not joined in time, or torchrun was not started in time, although the pods run",
    ),
    Move(
        FORMING,
        Outcome.FAILED,
        CLOSED,
        0,
        "a `Close`, one crash or failure too many, success without any round, or the job's deadline",
    ),
    Move(FORMING, Outcome.COMPLETE, CLOSED, 0, "workers have finished, and no other is wanted"),
    Move(FORMED, ROUND_BROKEN, FORMING, 1, "a member is lost, leaves, has another id, joins again, or hangs"),
    Move(
        FORMED,
        ROUND_REOPENED,
        FORMING,
        1,
        "newcomers have joined, and no other is awaited; or a restart is requested",
    ),
    Move(FORMED, STAGE_FINISHED, FORMING, 1, "all members have succeeded, and the next torchrun of one has begun"),
    Move(FORMED, Outcome.COMPLETE, CLOSED, 0, "all members have finished, or no other worker is wanted"),
    Move(
        FORMED,
        Outcome.FAILED,
        CLOSED,
        0,
        "after the success of its torchrun a member's container fails once too often or goes on for too long; or the "
        "job's deadline",
    ),
    Move(FORMED, Outcome.CLOSED, CLOSED, 0, "a worker requests `Close`; the members train on to their end"),
    Move(CLOSED, Outcome.COMPLETE, CLOSED, 0, "after a `Close`, all members have finished"),
    Move(
        CLOSED,
        Outcome.FAILED,
        CLOSED,
        0,
        "after a `Close`, all members have ended, and not all in success; or the job's deadline",
    ),
)
TABLE = {(move.source, move.event): move for move in MOVES}


class IllegalMove(Exception):
    """A bug of ours: `decide` asked for a move that is not in the table."""


def moved(state: State, event: str) -> State:
    """`state` in the phase that `event` leads to. Raises `IllegalMove` if the table has no such move, or if the state
    has ended."""
    move = None if state.ended else TABLE.get((state.phase, event))
    if move is None:
        stands = f"has ended ({state.outcome})" if state.ended else f"is {state.phase}"
        raise IllegalMove(f"round {state.round} {stands}: {event} is no move out of that")
    outcome = Outcome(event) if move.target is CLOSED else None
    return replace(state, phase=move.target, round=state.round + move.opens, outcome=outcome)
