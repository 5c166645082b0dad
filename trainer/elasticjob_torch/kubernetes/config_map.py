# SPDX-License-Identifier: Apache-2.0
"""One ConfigMap, its content and its changes. The meaning of the content is unknown here."""

from __future__ import annotations

import base64
import binascii
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from elasticjob_torch.kubernetes.api import (
    ApiClient,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Rejected,
    Unavailable,
    error_of_event,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from elasticjob_torch.kubernetes.owner import Owner

_MERGE_PATCH = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_EXAMPLE = "ElasticJob's examples/kubernetes-backend"


@dataclass(frozen=True)
class Content:
    """The content of a ConfigMap at one version."""

    version: str
    data: Mapping[str, str] = field(default_factory=dict)
    binary: Mapping[str, bytes] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[str, ...] = ()
    """The uids of the objects with which it is deleted."""


class ConfigMap:
    """One ConfigMap of the cluster. Every method raises `ApiError`, within ``patience`` plus the time of one answer.

    Args:
        owner: the object with which Kubernetes deletes it; `create` and writes that ask for it set it.
    """

    def __init__(self, client: ApiClient, namespace: str, name: str, owner: Owner | None = None) -> None:
        self._client = client
        self._collection = f"/api/v1/namespaces/{quote(namespace)}/configmaps"
        self._path = f"{self._collection}/{quote(name)}"
        self._namespace = namespace
        self._name = name
        self._owner = owner

    def __str__(self) -> str:
        return f"ConfigMap {self._namespace}/{self._name}"

    def clone(self, answer_seconds: float | None = None) -> ConfigMap:
        """Return the same ConfigMap over a connection of its own, whose calls never wait for this one's."""
        return ConfigMap(self._client.clone(answer_seconds), self._namespace, self._name, self._owner)

    def close(self) -> None:
        """Close the connection; a later call makes a new one."""
        self._client.close()

    @property
    def delete_command(self) -> str:
        """The command with which a person deletes it."""
        return f"kubectl delete configmap {self._name} --namespace {self._namespace}"

    def is_owned(self, content: Content) -> bool:
        """Say whether the owner, if there is one, is the only one that the ConfigMap has."""
        return self._owner is None or content.owners == (self._owner.uid,)

    def read(self, patience: float) -> Content:
        """Return the content. Raises NotFound."""
        return self._call("get", "GET", self._path, None, patience)

    def create(self, data: Mapping[str, str] | None = None, *, patience: float) -> Content:
        """Create it. Raises Conflict if it exists."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": self._namespace, **self._owners()},
            "data": dict(data or {}),
        }
        return self._call("create", "POST", self._collection, body, patience)

    def patch(
        self,
        *,
        patience: float,
        data: Mapping[str, str | None] | None = None,
        binary: Mapping[str, bytes | None] | None = None,
        annotations: Mapping[str, str] | None = None,
        version: str | None = None,
        own: bool = False,
    ) -> Content:
        """Write the named keys, delete those that are None, leave all others.

        With a version, only if that is still current; with ``own`` the owner too. Raises NotFound, Conflict.
        """
        metadata: dict[str, Any] = self._owners() if own else {}
        if version is not None:
            metadata["resourceVersion"] = version
        if annotations:
            metadata["annotations"] = dict(annotations)
        body: dict[str, Any] = {"metadata": metadata}
        if data:
            body["data"] = dict(data)
        if binary:
            body["binaryData"] = {
                key: None if value is None else base64.b64encode(value).decode() for key, value in binary.items()
            }
        return self._call("patch", "PATCH", self._path, body, patience, _MERGE_PATCH)

    def replace(
        self, key: str, before: str, data: Mapping[str, str | None], *, patience: float, own: bool = False
    ) -> Content:
        """Write the named keys and delete those that are None, only if ``key`` still has the value ``before``.

        Other keys may change meanwhile. With ``own`` it writes the owner too. Raises NotFound, Conflict.
        """
        body: list[dict[str, Any]] = [{"op": "test", "path": f"/data/{key}", "value": before}]
        owners = self._owners() if own else {}
        body += [{"op": "add", "path": f"/metadata/{name}", "value": value} for name, value in owners.items()]
        for name, value in data.items():
            path = f"/data/{name}"
            body.append(
                {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
            )
        try:
            return self._call("patch", "PATCH", self._path, body, patience, _JSON_PATCH)
        except Rejected as error:  # also the answer to a failed test
            there = self.read(patience).data
            if there.get(key) != before or any(value is None and name not in there for name, value in data.items()):
                raise Conflict(f"{key} of {self} has changed") from error
            raise

    def watch(self, version: str, seconds: float) -> Generator[Content | None, None, None]:
        """Yield each new content after a version, and None after a deletion; ends after ``seconds`` or earlier.

        A version that is too old ends it at once.
        """
        query = (
            f"watch=1&fieldSelector={quote(f'metadata.name={self._name}')}"
            f"&resourceVersion={quote(version)}&timeoutSeconds={int(seconds) + 1}"
        )
        path = f"{self._collection}?{query}"
        try:
            with closing(self._client.watch(path, seconds)) as events:
                for event in events:
                    if event.get("type") == "ERROR":
                        raise error_of_event(event, str(self))
                    yield None if event.get("type") == "DELETED" else self._content(event.get("object"))
        except Gone:
            return
        except Forbidden as error:
            raise self._explain("watch", error) from error

    def _owners(self) -> dict[str, Any]:
        """Return the fields of the metadata that name the owner."""
        return {} if self._owner is None else {"ownerReferences": [self._owner.reference]}

    def _call(
        self, verb: str, method: str, path: str, body: Any, patience: float, content_type: str = "application/json"
    ) -> Content:
        try:
            return self._content(self._client.call(method, path, body, patience=patience, content_type=content_type))
        except Forbidden as error:
            raise self._explain(verb, error) from error
        except Rejected as error:
            raise Rejected(f"{self} cannot be written; it holds 1 MiB at most: {error}") from error

    def _explain(self, verb: str, error: ApiError) -> Forbidden:
        return Forbidden(
            f"the pod's service account may not {verb} {self}; grant it as the Role in {_EXAMPLE} does"
            + (", or create the ConfigMap beforehand" if verb == "create" else "")
            + f" ({error})"
        )

    def _content(self, body: Any) -> Content:
        try:
            metadata = body["metadata"]
            return Content(
                version=str(metadata["resourceVersion"]),
                data=dict(body.get("data") or {}),
                binary={key: base64.b64decode(value) for key, value in (body.get("binaryData") or {}).items()},
                annotations=dict(metadata.get("annotations") or {}),
                owners=tuple(str(owner["uid"]) for owner in metadata.get("ownerReferences") or ()),
            )
        except (AttributeError, KeyError, TypeError, ValueError, binascii.Error) as error:
            raise Unavailable(f"the API server's answer about {self} lacks {error}") from error
