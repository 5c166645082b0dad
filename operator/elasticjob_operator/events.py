"""Kubernetes Events on the ElasticJob. They are for people: a lost one is logged, never waited for or retried."""

import asyncio
import logging
from datetime import UTC, datetime
from uuid import uuid4

from elasticjob.api import API_VERSION
from elasticjob_operator.kube import CORE, Kube, Object

COMPONENT = "elasticjob-operator"
LONGEST_MESSAGE = 1024

log = logging.getLogger(__name__)


class Announcer:
    def __init__(self, kube: Kube, identity: str) -> None:
        self._kube, self._identity = kube, identity
        self._last: asyncio.Task[None] | None = None

    def tell(self, job: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Post an event on `job` in the background, after those told before it."""
        event = self._event(job, reason, message, "Warning" if warning else "Normal")
        self._last = asyncio.create_task(self._post(event, self._last))

    async def _post(self, event: Object, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        try:
            await self._kube.request("POST", f"{CORE}/namespaces/{event['metadata']['namespace']}/events", event)
        except Exception as error:
            log.warning("the event %r was not posted: %s", event["message"], str(error) or type(error).__name__)

    def _event(self, job: Object, reason: str, message: str, kind: str) -> Object:
        meta, now = job["metadata"], datetime.now(UTC)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{uuid4().hex[:16]}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": "ElasticJob",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
            "type": kind,
            "action": reason,
            "count": 1,
            "firstTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lastTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._identity,
        }
