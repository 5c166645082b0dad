# SPDX-License-Identifier: Apache-2.0
"""torch's own c10d rendezvous: one process with the store, a few with the agents' handlers."""

import secrets
from typing import Any

from rounds.child import Child
from rounds.group import Group

LAST_CALL_SECONDS = 30  # torch's default
ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # else it cannot scale up at all


class C10d(Group):
    """N agents of one rendezvous. `spare`: how many more than N it may have."""

    def __init__(self, processes: list[Child], store: str, size: int, spare: int, last_call: int = LAST_CALL_SECONDS):
        super().__init__(processes)
        self._parameters: dict[str, Any] = {
            "backend": "c10d",
            "endpoint": store,
            "run_id": secrets.token_hex(8),
            "min_nodes": size,
            "max_nodes": size + spare,
            "local_addr": "127.0.0.1",
            "is_host": "false",
            "last_call_timeout": str(last_call),
        }
        self.make({str(index): self._parameters for index in range(size)}, ENVIRONMENT)

    def add(self, name: str) -> None:
        self.make({name: self._parameters}, ENVIRONMENT)
