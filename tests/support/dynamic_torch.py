# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for what the kubernetes backend takes from torch's dynamic rendezvous; real torch is met in pods."""

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

PLUGIN = "elasticjob_torch.kubernetes"


@dataclass(eq=True, order=True, frozen=True)
class Node:
    addr: str
    pid: int
    local_id: int


class State:
    round: int
    complete: bool
    deadline: datetime | None
    closed: bool
    participants: dict[Node, int]
    wait_list: set[Node]
    redundancy_list: set[Node]
    last_heartbeats: dict[Node, datetime]

    def __init__(self, **changes: Any) -> None:
        self.round, self.complete, self.deadline, self.closed = 0, False, None, False
        self.participants, self.wait_list, self.redundancy_list, self.last_heartbeats = {}, set(), set(), {}
        vars(self).update(changes)


class Store:
    """torch's base class, as far as a Python store uses it."""

    def __init__(self) -> None:
        self.timeout = timedelta(seconds=300)

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = timeout


class RendezvousError(Exception):
    pass


class DistStoreError(RuntimeError):
    pass


class SignalException(Exception):
    pass


def _modules() -> dict[str, dict[str, Any]]:
    names = ("Closed", "Connection", "GracefulExit", "State", "Timeout")
    errors = {f"Rendezvous{name}Error": type(f"Rendezvous{name}Error", (RendezvousError,), {}) for name in names}
    rendezvous = "torch.distributed.elastic.rendezvous"
    dynamic = types.ModuleType(f"{rendezvous}.dynamic_rendezvous")
    vars(dynamic).update(
        RendezvousBackend=object, _RendezvousState=State, _NodeDesc=Node, DynamicRendezvousHandler=object
    )
    return {
        "torch": {},
        "torch.distributed": {
            "DistStoreError": DistStoreError,
            "DistNetworkError": type("DistNetworkError", (RuntimeError,), {}),
            "Store": Store,
        },
        "torch.distributed.elastic": {},
        "torch.distributed.elastic.multiprocessing": {"SignalException": SignalException},
        rendezvous: {
            "RendezvousHandler": object,
            "RendezvousInfo": object,
            "RendezvousParameters": object,
            "dynamic_rendezvous": dynamic,
            "RendezvousError": RendezvousError,
            **errors,
        },
    }


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """Put the stand-ins in torch's place; gives the module with torch's rendezvous errors. For a fixture."""
    for name, members in _modules().items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    mine = [f"{PLUGIN}.{name}" for name in ("backend", "handler", "store")]
    for name in mine:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield sys.modules["torch.distributed.elastic.rendezvous"]
    for name in mine:
        sys.modules.pop(name, None)
