# SPDX-License-Identifier: Apache-2.0
"""How a request to the API server fails, as one tree.

ApiError             `str()` is one sentence; `status` is the HTTP status, 0 where no answer came
 + Unavailable       no answer, or a status such as 500: nobody knows whether a write was made; try again
 |  + NoConnection   to its address
 |  + Untrusted      what answers at its address does not prove to be the API server
 |  + Busy           429, 503, 504: it cannot answer now
 + Denied            another 4xx: somebody has to change something; try again, slowly
 |  + Unauthorized   401: it does not know who asks
 |  + Invalid        400, 422: asking again without a change is of no use
 |  + Forbidden      403, or what else a webhook or policy answers: rights, quotas and rules
 |     + Terminating   the namespace is being deleted: nothing can be made in it any more
 + NotFound          404
 + Conflict          409: the object has changed, or exists already
 + Gone              410: this resourceVersion is too old to list or watch from
"""

import json
import re
from collections.abc import Collection, Mapping

from elasticjob.text import printable


class ApiError(Exception):
    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Unavailable(ApiError): ...


class NoConnection(Unavailable): ...


class Untrusted(Unavailable):
    def __init__(self, message: str, *, speaks_of_time: bool) -> None:
        super().__init__(message)
        self.speaks_of_time = speaks_of_time


class Busy(Unavailable): ...


class Denied(ApiError): ...


class Unauthorized(Denied): ...


class Invalid(Denied): ...


class Forbidden(Denied): ...


class Terminating(Forbidden): ...


class NotFound(ApiError): ...


class Conflict(ApiError): ...


class Gone(ApiError): ...


BY_STATUS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Busy,
    503: Busy,
    504: Busy,
}
_TERMINATING = "NamespaceTerminating"
# the refusals of an admission webhook, which choose the status, and of a ValidatingAdmissionPolicy, which have 422
_DENIED = re.compile(r"^admission webhook .* denied the request|ValidatingAdmissionPolicy '.*' denied request: ")
_SHOWN_BYTES = 256  # of an answer that is not the API server's


def error_of(status: int, body: bytes, before: str = "") -> ApiError:
    """What the API server, or a proxy before it, has answered; `before` begins the sentence."""
    message = message_of(body)
    return kind_of(status, message, _causes_of(body))(before + message, status)


def kind_of(status: int, message: str = "", causes: Collection[str] = ()) -> type[ApiError]:
    if _TERMINATING in causes:
        return Terminating
    if _DENIED.search(message):
        return Forbidden
    return BY_STATUS.get(status) or (Denied if 400 <= status < 500 else Unavailable)


def message_of(body: bytes) -> str:
    """The sentence in an answer of the API server, which may be a webhook's; the beginning of anything else."""
    try:
        return printable(str(json.loads(body)["message"]))
    except (ValueError, KeyError, TypeError):
        return printable(body[:_SHOWN_BYTES].decode(errors="replace"))


def _causes_of(body: bytes) -> frozenset[str]:
    """The words by which an answer of the API server names the causes of a refusal; of anything else none."""
    try:
        return frozenset(str(cause["reason"]) for cause in json.loads(body)["details"]["causes"])
    except (ValueError, KeyError, TypeError):
        return frozenset()
