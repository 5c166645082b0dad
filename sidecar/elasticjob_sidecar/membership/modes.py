# SPDX-License-Identifier: Apache-2.0
"""The moves of one worker's side of the rendezvous between modes, as one table. `machine` says when.

`make docs` writes the table into docs/protocol.md.
"""

from enum import StrEnum
from typing import NamedTuple

from elasticjob.terms import RequestCause, RequestType


class Mode(StrEnum):
    IDLE = "Idle"  # no request; the last one, if any, was a Leave
    JOINING = "Joining"  # a Join is announced; its round may be formed already, until a trainer fetches it
    HANDED = "Handed"  # a round was handed to the trainer
    FINISHED = "Finished"  # the trainer ended in success


IDLE, JOINING, HANDED, FINISHED = Mode
JOINED, HANDED_OUT, HAS_FINISHED = "Joined", "HandedOut", "HasFinished"


RENEWED_WHEN = "a round was formed after the join, without this worker; or a live join now comes from new processes"


class ModeChange(NamedTuple):
    """From any of `sources` to `target` by `event`; for a leave, its cause. `asks`: the record's request from then on,
    None for no change."""

    sources: tuple[Mode, ...]
    event: str
    target: Mode
    asks: RequestType | None
    when: str


MOVES = (
    ModeChange(
        (IDLE, HANDED, FINISHED), JOINED, JOINING, RequestType.JOIN, "a trainer asks for a round after the last one"
    ),
    ModeChange((JOINING,), RequestCause.RENEWED, JOINING, RequestType.JOIN, RENEWED_WHEN),
    ModeChange(
        (JOINING,), HANDED_OUT, HANDED, None, "a round is formed with this worker, and its trainer waits for it"
    ),
    ModeChange(
        (JOINING,),
        RequestCause.JOIN_TIMEOUT,
        IDLE,
        RequestType.LEAVE,
        "no round was formed within the time that the trainer wanted to wait, and none stands without this worker",
    ),
    ModeChange(
        (JOINING, HANDED),
        RequestCause.AGENT_LOST,
        IDLE,
        RequestType.LEAVE,
        "the trainer that holds a round is gone; or the trainer that joined is gone, and no other has come within 5 s, "
        "or fetched the formed round within `storeReadySeconds`",
    ),
    ModeChange(
        (HANDED,),
        RequestCause.STORE_NOT_READY,
        IDLE,
        RequestType.LEAVE,
        "rank 0's trainer did not serve the store within `storeReadySeconds`",
    ),
    ModeChange(
        tuple(Mode),
        RequestCause.TRAINER_LEFT,
        IDLE,
        RequestType.LEAVE,
        "the trainer that joined or holds a round says that it leaves, and its cause; or any trainer that was told to "
        "leave says so",
    ),
    ModeChange(
        (IDLE, JOINING, HANDED),
        RequestCause.POD_STOPPING,
        IDLE,
        RequestType.LEAVE,
        "the pod stops, and its trainer has not left",
    ),
    ModeChange(
        tuple(Mode),
        HAS_FINISHED,
        FINISHED,
        RequestType.FINISH,
        "the trainer has ended in success, or finds its stage finished; or an earlier sidecar of this pod has recorded "
        "it",
    ),
)
TABLE = {(source, move.event): move for move in MOVES for source in move.sources}


class IllegalModeChange(Exception):
    """A bug of ours: the machine asked for a move that is not in the table."""


def move_out_of(mode: Mode, event: str) -> ModeChange:
    """The move. Raises `IllegalModeChange`."""
    move = TABLE.get((mode, event))
    if move is None:
        raise IllegalModeChange(f"the worker is {mode}: {event} is no move out of that")
    return move
