# SPDX-License-Identifier: Apache-2.0
"""What the operator has the processor for, by the functions in its stacks. Pure."""

from collections import Counter
from collections.abc import Mapping
from importlib import import_module

OPERATOR = "elasticjob_operator"
# The first of these that has a function in a stack has its time, whatever it calls.
PARTS: Mapping[str, tuple[str, ...]] = {
    "the Lease": (f"{OPERATOR}.cluster.leader:Leadership._hold", f"{OPERATOR}.cluster.leader:Leadership._tick"),
    "steps: the status is encoded, sent and answered": (f"{OPERATOR}.cluster.client:Kube.replace_job_status",),
    "steps: the access of workers is checked": (f"{OPERATOR}.actions.access:Access.give",),
    "steps: pods and records are observed": (f"{OPERATOR}.job.observe:Observer.observe",),
    "steps: the rules": ("elasticjob.rendezvous.decide:decide",),
    "steps: the status is made": (f"{OPERATOR}.job.status:status_of",),
    "steps: all else": (f"{OPERATOR}.cluster.workqueue:WorkQueue._run",),
    "events: heartbeats, reports and progress are noted": (f"{OPERATOR}.cluster.reflector:Reflector.took",),
    "events: kopf's tasks and our handlers": ("kopf._core.reactor.queueing:worker",),
    "watches: lines, JSON, timers": (f"{OPERATOR}.cluster.reflector:_continuous_watch",),
    "connections: what arrives, and its decryption": ("asyncio.selector_events:_SelectorSocketTransport._read_ready",),
}
REST = "the event loop, and all else"


def check() -> None:
    """Raises AttributeError or ImportError where a function has another name by now."""
    for name in (name for names in PARTS.values() for name in names):
        module, _, path = name.partition(":")
        found: object = import_module(module)
        for word in path.split("."):
            found = getattr(found, word)


def shares(stacks: Mapping[str, int]) -> dict[str, float]:
    """The share of each part. `stacks`: how often each was found, with its functions in lines."""
    found = Counter(dict.fromkeys((*PARTS, REST), 0))
    for stack, times in stacks.items():
        found[_part_of(frozenset(stack.split("\n")))] += times
    return {part: times / max(1, found.total()) for part, times in found.items()}


def _part_of(functions: frozenset[str]) -> str:
    return next((part for part, names in PARTS.items() if not functions.isdisjoint(names)), REST)


def table(stacks: Mapping[str, int], cores: float, rates: Mapping[str, float]) -> str:
    """`cores`: those of the operator. `rates`: what it had to do, in a second."""
    lines = [f"{cores * share:7.4f}  {part}" for part, share in shares(stacks).items()]
    done = ", ".join(f"{rate:.1f} {what}" for what, rate in rates.items())
    return "\n".join([f"cores at rest, with {done} a second; {sum(stacks.values())} samples", *lines])
