# SPDX-License-Identifier: Apache-2.0
"""A worker's request to the operator, as a patch of its record and in words for the log."""

from elasticjob.api import WorkerRequest
from elasticjob.objects import Object


def replacing(request: WorkerRequest | None) -> Object | None:
    """`request` for a merge patch: absent fields are null, as those of the last request would stay otherwise."""
    return None if request is None else request.model_dump(mode="json", by_alias=True)


def in_words(request: WorkerRequest | None) -> str:
    if request is None:
        return "nothing"
    after = "" if request.after is None else f" after round {request.after}"
    round_ = "" if request.round is None else f" round {request.round}"
    return f"{request.type}{after}{round_}" + (f" ({request.cause})" if request.cause else "")
