# SPDX-License-Identifier: Apache-2.0
"""The failures of requests to the API server, as one tree of exceptions.

ApiError             `str()` is one sentence; `status` is the HTTP status, 0 without a response
 + Unavailable       no response, or a status such as 500: a write may or may not have taken effect; retry
 |  + NoConnection   no connection to its address
 |  + TimedOut       no answer in time
 |  + Untrusted      the server at its address cannot prove that it is the API server
 |  + Busy           429, 503, 504: it cannot answer now
 + Denied            another 4xx: someone has to change something; retry slowly
 |  + Unauthorized   401: it does not recognize the caller
 |  + Invalid        400, 422: a retry without a change is useless
 |  + Forbidden      403, or a refusal by a webhook or policy: rights, quotas and rules
 |     + Terminating   the namespace is being deleted: nothing can be created in it any more
 + NotFound          404
 + Conflict          409: the object has changed, or exists already; 422: it is another one, with another uid
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


class TimedOut(Unavailable): ...


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
_REPLACED = "metadata.uid"  # the field that 422 names for a patch whose uid is not the object's; a PUT has 409
# refusals by an admission webhook, which chooses the status, and by a ValidatingAdmissionPolicy, which has 422
_DENIED = re.compile(r"^admission webhook .* denied the request|ValidatingAdmissionPolicy '.*' denied request: ")
_SHOWN_BYTES = 256  # of a response that does not come from the API server


def error_of(status: int, body: bytes, *, with_status: bool = False) -> ApiError:
    """The error for a response of the API server, or of a proxy before it, in its own words. `with_status`: after the
    status, as always without such words."""
    message = message_of(body)
    sentence = with_its_status(status, message) if with_status or not message else message
    return kind_of(status, message, _causes_of(body))(sentence, status)


def with_its_status(status: int, message: str) -> str:
    return f"the API server answered {status}: {message}" if message else f"the API server answered {status}"


def kind_of(status: int, message: str = "", causes: Collection[str] = ()) -> type[ApiError]:
    if _TERMINATING in causes:
        return Terminating
    if status == 422 and _REPLACED in causes:
        return Conflict
    if _DENIED.search(message):
        return Forbidden
    return BY_STATUS.get(status) or (Denied if 400 <= status < 500 else Unavailable)


def message_of(body: bytes) -> str:
    """The message in a response of the API server, which may quote a webhook; the beginning of any other response."""
    try:
        return printable(str(json.loads(body)["message"]))
    except (ValueError, KeyError, TypeError):
        return printable(body[:_SHOWN_BYTES].decode(errors="replace"))


def _causes_of(body: bytes) -> frozenset[str]:
    """The reasons and fields that a response of the API server names for a refusal; none for any other response."""
    try:
        causes = json.loads(body)["details"]["causes"]
        return frozenset(str(cause[key]) for cause in causes for key in ("reason", "field") if key in cause)
    except (ValueError, KeyError, TypeError):
        return frozenset()
