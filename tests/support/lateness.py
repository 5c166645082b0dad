# SPDX-License-Identifier: Apache-2.0
"""Lateness on purpose: with ELASTICJOB_LATE=SEED tests, their watches, operators and stand-in kubelets are late at
random, each for itself and each by up to three seconds (`make flakes LATE=SEED`).

A test that asserts something about a moment passes while everybody is in time. Here it fails by running it.
"""

import os
import random
import time
from functools import cache

SEED = "ELASTICJOB_LATE"
MOST_SECONDS = 3.0
SHARE = 0.3  # of the occasions; so that some are late while others are not


@cache
def _choices(who: str) -> random.Random:
    return random.Random(f"{os.environ.get(SEED)} {who}")


def is_wanted() -> bool:
    return bool(os.environ.get(SEED))


def seconds(who: str) -> float:
    """How late `who` is this time; 0 unless lateness is wanted."""
    chosen = _choices(who)
    return chosen.uniform(0, MOST_SECONDS) if is_wanted() and chosen.random() < SHARE else 0.0


def pause(who: str) -> None:
    """Be late."""
    if late := seconds(who):
        time.sleep(late)
