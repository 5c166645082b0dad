# SPDX-License-Identifier: Apache-2.0
"""The sidecar's pauses between tries: at most three seconds, with jitter."""

import random

from elasticjob.kube.retry import Backoff, RetryPolicy

RETRY = RetryPolicy(0.1, 3.0, jitter=0.5)


def backoff() -> Backoff:
    return Backoff(RETRY, lambda: random.uniform(0, 1))


class RequestTries:
    """Consecutive failures of one kind of request, whether the last was a `conflict`, and the pause before the next
    try."""

    def __init__(self) -> None:
        self.failures, self.conflict, self.backoff = 0, False, backoff()

    def over(self) -> None:
        """Start over, after a success."""
        self.failures, self.conflict = 0, False
        self.backoff.reset()
