# SPDX-License-Identifier: Apache-2.0
"""The objects of one cluster that the commands read and change. Errors are raised as sentences."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from elasticjob.api import JOB_LABEL
from elasticjob.kube import paths
from elasticjob.kube.names import field_manager
from elasticjob.objects import Object
from elasticjob_cli.cluster.access import KubectlFlags, access_of
from elasticjob_cli.cluster.transport import SyncTransport
from elasticjob_cli.errors import CliError

PAGE = 500
OWNER = field_manager("cli")
MERGE = "application/merge-patch+json"


class Cluster:
    """One cluster. `namespace`: the namespace if a command names none."""

    def __init__(self, transport: SyncTransport, namespace: str) -> None:
        self._transport, self.namespace = transport, namespace

    @classmethod
    def connect(cls, flags: KubectlFlags) -> "Cluster":
        """Connects to the cluster of `flags`. Raises CliError."""
        access = access_of(flags)
        return cls(SyncTransport(access), access.namespace)

    @property
    def now(self) -> datetime:
        """The API server's time at its last answer."""
        return self._transport.now

    def close(self) -> None:
        self._transport.close()

    # jobs

    def job(self, name: str) -> Object:
        return self._get(paths.JOBS.one(name, self.namespace))

    def jobs(self, *, everywhere: bool = False, selector: str = "") -> list[Object]:
        return self._all(paths.JOBS.all(None if everywhere else self.namespace), selector)

    def create_job(self, job: Object, *, dry_run: bool = False) -> Object:
        query = {"fieldValidation": "Strict", "fieldManager": OWNER} | ({"dryRun": "All"} if dry_run else {})
        return self._ask("POST", paths.JOBS.all(self.namespace), query, job)

    def patch_job(self, name: str, patch: Object) -> Object:
        return self._patch(paths.JOBS.one(name, self.namespace), patch)

    def scale_job(self, name: str, replicas: int) -> None:
        self._patch(paths.JOBS.one(name, self.namespace, "scale"), {"spec": {"replicas": replicas}})

    # objects of jobs

    def records(self, job: str) -> list[Object]:
        return self._all(paths.WORKERS.all(self.namespace), f"{JOB_LABEL}={job}")

    def pods(self, job: str) -> list[Object]:
        return self._all(paths.PODS.all(self.namespace), f"{JOB_LABEL}={job}")

    def of_all_jobs(self, kind: paths.Resource, *, everywhere: bool) -> list[Object]:
        """All objects of that kind; pods only if they are workers'."""
        selector = JOB_LABEL if kind == paths.PODS else ""
        return self._all(kind.all(None if everywhere else self.namespace), selector)

    def pod(self, namespace: str, name: str) -> Object:
        return self._get(paths.PODS.one(name, namespace))

    def claim(self, name: str) -> Object:
        return self._get(paths.CLAIMS.one(name, self.namespace))

    def events(self) -> list[Object]:
        return self._all(paths.EVENTS.all(self.namespace))

    def lease(self, namespace: str, name: str) -> Object:
        return self._get(paths.LEASES.one(name, namespace))

    def may(self, user: str, verb: str, group: str, resource: str) -> bool:
        """Whether `user` may do that in the namespace. `resource` may end in a slash and a subresource."""
        kind, _, part = resource.partition("/")
        asked = {"namespace": self.namespace, "verb": verb, "group": group, "resource": kind, "subresource": part}
        reviews = paths.ACCESS_REVIEWS
        body = {"apiVersion": reviews.api_version, "kind": "SubjectAccessReview"}
        spec = {"spec": {"user": user, "resourceAttributes": asked}}
        return bool(self._ask("POST", reviews.all(), {}, body | spec)["status"]["allowed"])

    # logs

    def log(self, pod: str, container: str, **options: Any) -> str:
        """The log so far, with a time before each line. `options`: those of the API, such as `tailLines`."""
        return self._transport.ask("GET", *self._log(pod, container, options)).decode(errors="replace")

    def follow_log(self, pod: str, container: str, **options: Any) -> Iterator[str]:
        """The log's lines as they arrive, with a time before each. Ends with the container, or if nothing arrives for
        long."""
        path, query = self._log(pod, container, options)
        rest = b""
        for chunk in self._transport.stream(path, query | {"follow": "true"}):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def _log(self, pod: str, container: str, options: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
        given = {key: value if isinstance(value, str) else json.dumps(value) for key, value in options.items()}
        return paths.PODS.one(pod, self.namespace, "log"), {"container": container, "timestamps": "true", **given}

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> Object:
        return self._ask("GET", path, query)

    def _patch(self, path: str, patch: Object) -> Object:
        return self._ask("PATCH", path, {"fieldManager": OWNER}, patch, content_type=MERGE)

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Object | None = None, **given: str
    ) -> Object:
        sent = None if body is None else json.dumps(body).encode()
        text = self._transport.ask(method, path, query, body=sent, **given)
        try:
            answer: Object = json.loads(text)
        except ValueError as error:
            raise CliError(f"what answers at {self._transport.server} is no API server: see --server") from error
        return answer

    def _all(self, path: str, selector: str = "") -> list[Object]:
        query = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        answer = self._get(path, query)
        items: list[Object] = answer["items"]
        while after := answer["metadata"].get("continue"):
            answer = self._get(path, query | {"continue": after})
            items += answer["items"]
        return items
