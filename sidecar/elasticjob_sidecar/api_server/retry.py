# SPDX-License-Identifier: Apache-2.0
"""How long the sidecar waits before it tries again: never more than three seconds, never in step with others."""

import random

from elasticjob.kube.retry import Backoff, RetryPolicy

RETRY = RetryPolicy(0.1, 3.0, jitter=0.5)


def backoff() -> Backoff:
    return Backoff(RETRY, lambda: random.uniform(0, 1))


class Tries:
    """How often one kind of thing has failed in a row, the last time by a `conflict`, and how long to wait before the
    next."""

    def __init__(self) -> None:
        self.failures, self.conflict, self.backoff = 0, False, backoff()

    def over(self) -> None:
        """It was done."""
        self.failures, self.conflict = 0, False
        self.backoff.reset()
