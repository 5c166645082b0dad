# SPDX-License-Identifier: Apache-2.0
"""A controller that treats a faulty node as NVSentinel's documentation says, and needs no GPU for it.

Its fault-quarantine cordons the node, labels it, and taints it where a rule set says so. Its node-drainer then empties
the node, by the mode of the pods' namespace.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from e2e import api
from e2e.disruption import uncordon
from e2e.kube import Namespace, Object, kubectl

EVICTION_SECONDS = 60  # the grace of an eviction, its default
AGAIN_SECONDS = 2.0  # until it tries to evict once more; NVSentinel begins with ten seconds
CORDONED_BY, STATE = "k8saas.nvidia.com/cordon-by", "dgxc.nvidia.com/nvsentinel-state"


class Mode(StrEnum):
    """How the pods of a namespace leave the node. `ALLOW_COMPLETION`, the default: they are waited for. `IMMEDIATE`:
    they are evicted. `DELETE_AFTER_TIMEOUT`: they are waited for, and deleted by force in the end."""

    ALLOW_COMPLETION = "AllowCompletion"
    IMMEDIATE = "Immediate"
    DELETE_AFTER_TIMEOUT = "DeleteAfterTimeout"


@dataclass
class NodeDrainer:
    """Of one node and the pods of one namespace. `timeout`: seconds until pods are deleted by force. `refused`: how
    often a budget has refused an eviction."""

    node: str
    namespace: Namespace
    mode: Mode
    timeout: float = inf
    refused: int = 0
    _began: float = field(default_factory=time.monotonic)
    _tried: float = -inf

    def is_drained(self) -> bool:
        """Go on with the drain; whether no pod is left."""
        there = [pod["metadata"]["name"] for pod in self._pods()]
        now = time.monotonic()
        if self.mode is Mode.IMMEDIATE and now - self._tried >= AGAIN_SECONDS:
            self._tried = now
            self.refused += sum(not self._evicts(name) for name in there)
        if self.mode is Mode.DELETE_AFTER_TIMEOUT and now - self._began >= self.timeout and there:
            self.namespace.try_kubectl("delete", "pod", *there, "--force", "--grace-period=0", "--wait=false")
        if not there:
            kubectl("label", "node", self.node, "--overwrite", f"{STATE}=drain-succeeded")
        return not there

    def _pods(self) -> list[Object]:
        on = self.namespace.list("pods", fieldSelector=f"spec.nodeName={self.node}")
        return [pod for pod in on if pod["status"].get("phase") not in ("Succeeded", "Failed")]

    def _evicts(self, name: str) -> bool:
        """Whether an eviction is granted. Raises AssertionError if something else than a budget refuses it."""
        options = {"gracePeriodSeconds": EVICTION_SECONDS}
        meta = {"name": name, "namespace": self.namespace.name}
        body: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
        path = f"/api/v1/namespaces/{self.namespace.name}/pods/{name}/eviction"
        try:
            api.call("POST", path, body)
        except api.Refused as refused:
            if refused.code not in (404, 429):
                raise
            return refused.code == 404
        return True


@contextmanager
def quarantined(
    node: str, namespace: Namespace, mode: Mode, *, timeout: float = inf, cordons: bool = True, taint: str = ""
) -> Iterator[NodeDrainer]:
    """The node is faulty meanwhile. `cordons`, `taint`: what the rule set does, a `taint` as key=value:effect."""
    if cordons:
        kubectl("cordon", node)
    if taint:
        kubectl("taint", "node", node, taint)
    kubectl("label", "node", node, "--overwrite", f"{CORDONED_BY}=NVSentinel", f"{STATE}=draining")
    try:
        yield NodeDrainer(node, namespace, mode, timeout)
    finally:
        kubectl("label", "node", node, f"{CORDONED_BY}-", f"{STATE}-")
        if taint:
            kubectl("taint", "node", node, f"{taint}-")
        uncordon(node)
