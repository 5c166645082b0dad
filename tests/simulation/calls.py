# SPDX-License-Identifier: Apache-2.0
"""Requests to the simulated API server, taken apart, and its answers. Nothing is decided here."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from simulation.watches import Watch


@dataclass(slots=True)
class Reply:
    """An answer; `after` as many seconds of the server's."""

    status: int
    body: bytes = b""
    after: float = 0.0
    watch: Watch | None = None

    @classmethod
    def failure(cls, status: int, message: str, reason: str = "", after: float = 0.0, field: str = "") -> "Reply":
        said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        details = {"causes": [{"reason": "FieldValueInvalid", "field": field}]} if field else {}
        return cls(status, json.dumps({**said, "reason": reason, "code": status, "details": details}).encode(), after)


@dataclass(slots=True)
class Call:
    """A request, taken apart."""

    method: str
    path: str
    plural: str
    namespace: str | None
    name: str
    sub: str
    query: dict[str, str]
    body: Any
    patch: bool
    client: str
    sent_at: float


def taken_apart(
    client: str, method: str, path: str, body: bytes | None, headers: dict[str, str], sent_at: float
) -> Call:
    path, _, query = path.partition("?")
    namespace, plural, name, sub = _parts(path)
    patch = "merge-patch" in headers.get("Content-Type", "")
    asked = dict(parse_qsl(query)) if query else {}
    given = json.loads(body) if body else None
    return Call(method, path, plural, namespace, name, sub, asked, given, patch, client, sent_at)


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str | None, str, str, str]:
    """Namespace, plural, name and subresource."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = None
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, sub = [*rest, "", "", ""][:3]
    return namespace, plural, name, sub
