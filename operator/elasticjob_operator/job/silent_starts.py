# SPDX-License-Identifier: Apache-2.0
"""What is reported of workers whose trainers run while their torchruns have not spoken to their sidecars. Pure."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from elasticjob.rendezvous import Worker
from elasticjob.rendezvous.barrier import unspoken
from elasticjob.rendezvous.model import PodKey


def silence(silent: Collection[Worker], started: Mapping[PodKey, str], seconds: int, *, enough: bool) -> str:
    """Which workers they are and, unless `enough` have joined without them, when that ends the job: `seconds` after the
    last of them has `started`, if that is known.

    The end is a time of day: a status is not rewritten for each second that passes.
    """
    told = unspoken(worker.index for worker in silent)
    if enough:
        return told
    since = max((started.get(worker.pod_key, "") for worker in silent), default="")
    if not since:
        return f"{told}: once the other pods run it has {seconds} s (spec.rendezvous.startTimeoutSeconds)"
    ends = datetime.fromisoformat(since) + timedelta(seconds=seconds)
    return f"{told}: the job fails at {ends:%Y-%m-%dT%H:%M:%SZ} (spec.rendezvous.startTimeoutSeconds is {seconds})"
