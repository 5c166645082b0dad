# SPDX-License-Identifier: Apache-2.0
"""The messages between agent and prestarted process, and when a prestarted process may replace an ordinary start.

Pure. Messages are JSON after their length, agent to process:

- ``{"imports": [...], "states": {...}, "late": [...], "rest": 4.0}``: import these early, up to the first that began in
  another `state` in the script, none that needs one of the ``late`` modules, and rest this many times longer than work;
  sent any number of times, each time with more at the end
- ``{"environment": {...}, "given": {...}, "learn": path}`` with two descriptors: run the script in this environment, in
  place of the one given at the start; the last message

and process to agent: ``{"doing": name}``, ``{"ready": modules, "done": imports, "differs": what}``, and last either
``{"warm": modules, "done": imports}`` when it runs the script, or ``{"unfit": [[import, module, why], ...]}`` when it
can do so only by a restart: which imports are to blame, and which module within them; empty names if none.
"""

from __future__ import annotations

import json
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

PRESTARTED = "ELASTICJOB_PRESTARTED"  # descriptors of its socket and its `lifeline`
LEARN = "ELASTICJOB_LEARN"  # a training process's file for its notes of imports
EVERY = "*"  # in place of a variable's name: the list of all variables was read
HEADER_BYTES = 4

# The variables of a round that torch's agent gives each process. They may differ, as an import that reads one is
# noticed. Any other variable may have been read by a library in C, by the interpreter, or by a .pth file.
_OF_A_ROUND = frozenset(
    {
        "ELASTICJOB_LIVE",  # `agent.messages.SOCKET`
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
    """A read by an import of something that may differ in the next round."""

    early_import: str  # one of the requested imports; empty if none is to blame
    module: str  # the module within it that read
    why: str  # in words


def encode(message: Mapping[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def decode(received: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """Return the complete messages among the bytes received, and the remaining bytes."""
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
    """Return a variable that must be set at a process's start and has another value now."""
    return next((name for name in differing(prestarted, ordered) if not is_of_a_round(name)), None)


def invalidated(
    prestarted: Mapping[str, str],
    now: Mapping[str, str],
    ordered: Mapping[str, str],
    reads: Mapping[str, Sequence[Read]],
) -> list[Read]:
    """Return the reads of early imports that the ordered environment would have changed, the first of each import.

    No import is to blame if the variables differ from the expected ones: the next process is given the right ones.

    Args:
        prestarted: the environment that the process was given. Python itself may have changed it at once
            (``LC_CTYPE``).
        now: the environment after the imports.
        ordered: the environment of an ordinary start.
        reads: by variable, the reads of it.
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


def merged(known: Iterable[str], learned: Iterable[str] = ()) -> list[str]:
    """Return what to import early the next time: each module once, in order."""
    return list(dict.fromkeys([*known, *learned]))


def shared(names: Sequence[str], states: Mapping[str, str], proven: Collection[str]) -> list[str]:
    """Return the part of the learned imports that can be done early where states are unknown: in another pod.

    Between two imports, the script may have changed the state, or the first import has. This is decided once a
    prestarted process has done the same.

    Args:
        proven: imports before which a prestarted process was in the script's state.
    """
    first = states.get(names[0], "") if names else ""
    return list(takewhile(lambda name: name in proven or states.get(name, "") in ("", first), names))


def is_of_a_round(name: str) -> bool:
    """Say whether torch's agent sets this variable for each process, with values of the round."""
    return name in _OF_A_ROUND or name.startswith(_PREFIX)
