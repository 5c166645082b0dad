"""What agent and prestarted process say to each other, and when a prestarted process may stand for an ordinary start.

Pure. Messages are JSON behind their length, agent to process:

- ``{"imports": [...], "states": {...}, "late": [...], "rest": 4.0}``: import these early, up to the first that began in
  another `state` in the script, none that needs one of the ``late`` modules, and rest so much longer than work; any
  number of times, with more at the end each time
- ``{"environment": {...}, "given": {...}, "learn": path}`` with two descriptors: run the script in this environment, in
  place of the one given at the start; the last message

and process to agent: ``{"doing": name}``, ``{"ready": modules, "done": imports, "differs": what}``, and last either
``{"warm": modules, "done": imports}`` when it runs the script, or ``{"unfit": [[import, module, why], ...]}`` when it
can do so only by a start anew: which imports are to blame, and which module that is part of them; empty names if none.
"""

from __future__ import annotations

import json
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

PRESTARTED = "ELASTICJOB_PRESTARTED"  # of a prestarted process: the descriptors of its socket and its `lifeline`
LEARN = "ELASTICJOB_LEARN"  # of a training process: the file to note its imports in
EVERY = "*"  # among the variables read: which ones there are
HEADER_BYTES = 4

# What torch's agent tells each process of its round. It may differ, as an import that reads one is noticed; any other
# variable may have been read by a library in C, by the interpreter, or by a .pth file.
_OF_A_ROUND = frozenset(
    {
        "ELASTICJOB_MASTER_ADDRESS",  # `environment.MASTER_ADDRESS`
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "ROLE_NAME",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "TORCH_ELASTIC_WORKER_IDENTICAL",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "WORLD_SIZE",
    }
)
_PREFIX = "TORCHELASTIC_"


class Read(NamedTuple):
    """That an import has read something which may be another in the next round."""

    early_import: str  # of those that were asked for; empty if none is to blame
    module: str  # whose import that was part of
    why: str  # in words


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as it is sent."""
    body = json.dumps(message).encode()
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def decode(received: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """Return the whole messages among the bytes received, and what is left of them."""
    messages = []
    while len(received) >= HEADER_BYTES:
        end = HEADER_BYTES + int.from_bytes(received[:HEADER_BYTES], "big")
        if len(received) < end:
            break
        messages.append(json.loads(received[HEADER_BYTES:end]))
        received = received[end:]
    return messages, received


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names of variables whose values differ, sorted."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def unforeseen(prestarted: Mapping[str, str], ordered: Mapping[str, str]) -> str | None:
    """Return a variable that has to be there when a process starts, and has another value now."""
    return next((name for name in differing(prestarted, ordered) if not is_of_a_round(name)), None)


def invalidated(
    prestarted: Mapping[str, str],
    now: Mapping[str, str],
    ordered: Mapping[str, str],
    reads: Mapping[str, Sequence[Read]],
) -> list[Read]:
    """Return what of the early imports the ordered environment would have changed, the first of each import.

    No import is to blame where the variables are others than were to be expected: in the next process they are there.

    Args:
        prestarted: the environment that the process was given. Python itself may have changed it at once
        (``LC_CTYPE``).
        now: what became of it, by imports.
        ordered: the one that it would have had in an ordinary start.
        reads: by variable, who has read it.
    """
    if (name := unforeseen(prestarted, ordered)) is not None:
        return [Read("", "", f"{name} has changed")]
    changed = differing(prestarted, ordered)
    if found := [read for name in changed for read in reads.get(name, ())]:
        return list({read.early_import: read for read in reversed(found)}.values())
    if EVERY in reads and (others := sorted(prestarted.keys() ^ ordered.keys())):
        return [Read("", "", f"{reads[EVERY][0].why}, and {others[0]} is there only now, or no more")]
    names = (name for name in differing(prestarted, now) if name in changed)
    return [Read("", "", f"an import has set {name}") for name in names][:1]


def merged(known: Iterable[str], learned: Iterable[str], unfit: Iterable[str]) -> list[str]:
    """Return what is to be imported early the next time, in its order."""
    return [name for name in dict.fromkeys([*known, *learned]) if name not in set(unfit)]


def shared(names: Sequence[str], states: Mapping[str, str], proven: Collection[str]) -> list[str]:
    """Return of what is learned what can be imported early where states are not known: in another pod.

    The script may have changed the state between two imports, or the first of them has. That is known when a prestarted
    process has done the same.

    Args:
        proven: imports before which a prestarted process was in the script's state.
    """
    first = states.get(names[0], "") if names else ""
    return list(takewhile(lambda name: name in proven or states.get(name, "") in ("", first), names))


def is_of_a_round(name: str) -> bool:
    """Say whether torch's agent gives each process of a round this variable, with values of the round."""
    return name in _OF_A_ROUND or name.startswith(_PREFIX)
