# SPDX-License-Identifier: Apache-2.0
"""Whether a caller may read the metrics: the API server says whose token it is, and what that user may do.

Answers are kept for a while, because a scraper calls repeatedly. A token itself is neither kept nor logged.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from enum import Enum, auto

from elasticjob.kube.paths import ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from elasticjob.objects import Object
from elasticjob_operator.cluster.client import Kube

METRICS_PATH = "/metrics"

GRANTED_SECONDS = 60.0  # a revoked right ends so much later
REFUSED_SECONDS = 10.0  # a granted right begins so much later
MAX_KEPT = 256
AT_ONCE = 4  # limits the requests that a flood of tokens causes at the API server
REQUEST_SECONDS = 3.0

log = logging.getLogger(__name__)


class TokenVerdict(Enum):
    GRANTED = auto()
    UNKNOWN = auto()
    """The token belongs to no user."""
    FORBIDDEN = auto()
    """The token's user may not get the path."""


class Reviews:
    """The verdicts on tokens, by TokenReview and SubjectAccessReview."""

    def __init__(self, kube: Kube, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._monotonic = kube, monotonic
        self._kept: dict[bytes, tuple[float, TokenVerdict]] = {}  # by hash: expiry, verdict; the oldest first
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def judge(self, token: str) -> TokenVerdict:
        """The verdict on `token`. Raises ApiError if the API server cannot be asked."""
        key = hashlib.sha256(token.encode()).digest()
        if (verdict := self._known(key)) is not None:
            return verdict
        async with self._turns:
            if (verdict := self._known(key)) is not None:  # judged meanwhile
                return verdict
            verdict = await self._ask(token)
        self._keep(key, verdict)
        return verdict

    def _known(self, key: bytes) -> TokenVerdict | None:
        until, verdict = self._kept.get(key, (0.0, None))
        return verdict if self._monotonic() < until else None

    def _keep(self, key: bytes, verdict: TokenVerdict) -> None:
        seconds = GRANTED_SECONDS if verdict is TokenVerdict.GRANTED else REFUSED_SECONDS
        self._kept.pop(key, None)
        self._kept[key] = self._monotonic() + seconds, verdict
        if len(self._kept) > MAX_KEPT:
            # refused tokens go first, so that tokens of strangers displace no scraper's
            refused = (one for one, (_, kept) in self._kept.items() if kept is not TokenVerdict.GRANTED)
            del self._kept[next(refused, next(iter(self._kept)))]

    async def _ask(self, token: str) -> TokenVerdict:
        review = await self._create(TOKEN_REVIEWS, "TokenReview", {"token": token})
        if not review.get("authenticated"):
            return TokenVerdict.UNKNOWN
        user = review["user"]
        who = {"user": user["username"], "uid": user.get("uid", ""), "groups": user.get("groups", [])}
        what = {"nonResourceAttributes": {"path": METRICS_PATH, "verb": "get"}, "extra": user.get("extra", {})}
        review = await self._create(ACCESS_REVIEWS, "SubjectAccessReview", who | what)
        if review.get("allowed"):
            return TokenVerdict.GRANTED
        log.warning("%s asks for the metrics and may not get %s", user["username"], METRICS_PATH)
        return TokenVerdict.FORBIDDEN

    async def _create(self, resource: Resource, kind: str, spec: Object) -> Object:
        """Creates a review and returns its status."""
        body = {"apiVersion": resource.api_version, "kind": kind, "spec": spec}
        status: Object = (await self._kube.request("POST", resource.all(), body, seconds=REQUEST_SECONDS))["status"]
        return status
