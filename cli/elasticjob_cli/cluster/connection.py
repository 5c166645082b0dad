# SPDX-License-Identifier: Apache-2.0
"""One cluster by a kubeconfig, as kubectl finds it. What goes wrong is raised as a sentence."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
import yaml
from kubernetes import client, config

from elasticjob.api import GROUP, JOB_LABEL, JOBS, VERSION, WORKERS
from elasticjob.kube.errors import Unavailable, kind_of
from elasticjob.kube.names import field_manager, user_agent
from elasticjob.objects import Object
from elasticjob.text import printable
from elasticjob_cli.cluster import kubeconfig
from elasticjob_cli.errors import CliError, Exit

REQUEST_SECONDS = 30.0
STREAM_SECONDS = (10.0, 300.0)  # to connect; without a line, after which a log is asked for anew
PAGE = 500
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
OTHER_SHAPE = (ValueError, TypeError, KeyError, AttributeError)  # what reading a body of another shape raises
PART = "cli"
OWNER = field_manager(PART)
PATCHED = {"_content_type": "application/merge-patch+json", "field_manager": OWNER}


class ApiError(CliError):
    """The API server said no; `status` is its HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence, Exit.NOT_FOUND if status == 404 else Exit.REFUSED)
        self.status = status


class NoAnswer(CliError):
    """The API server could not be reached, or said nothing."""


def may_pass(error: CliError) -> bool:
    """Whether the same question may be answered a moment later, as while an API server is started again."""
    away = isinstance(error, ApiError) and issubclass(kind_of(error.status), Unavailable)
    return away or isinstance(error, NoAnswer)


class Place(NamedTuple):
    """Where to look, as kubectl's flags say; None is what the kubeconfig says."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


class Cluster:
    """`namespace`: the one that counts where a command names none. `now`: the API server's clock, as it last
    answered."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.namespace, self.now = namespace, datetime.now(UTC)
        api.user_agent = user_agent(PART)
        self._core, self._custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        self._leases, self._reviews = client.CoordinationV1Api(api), client.AuthorizationV1Api(api)

    @classmethod
    def connect(cls, place: Place) -> "Cluster":
        """Raises CliError."""
        with _usable():
            known = kubeconfig.read(place.kubeconfig)
        context = place.context or known.current
        if not (context or place.kubeconfig):
            return cls._within(place)
        with _usable():
            api = config.new_client_from_config(known.files, context or None, persist_config=False)
        return cls(api, place.namespace or known.namespaces.get(context) or "default")

    @classmethod
    def _within(cls, place: Place) -> "Cluster":
        """In a pod, by its service account."""
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            sentence = "there is no cluster to speak with, as no kubeconfig names a current context: name one with "
            raise CliError(f"{sentence}--kubeconfig, --context or KUBECONFIG") from None
        return cls(client.ApiClient(configuration), place.namespace or _own_namespace())

    # jobs

    def job(self, name: str) -> Object:
        return self._ask(self._custom.get_namespaced_custom_object, GROUP, VERSION, self.namespace, JOBS, name)

    def jobs(self, *, everywhere: bool = False) -> list[Object]:
        if everywhere:
            return self._all(self._custom.list_cluster_custom_object, GROUP, VERSION, JOBS)
        return self._all(self._custom.list_namespaced_custom_object, GROUP, VERSION, self.namespace, JOBS)

    def create_job(self, job: Object, *, dry_run: bool = False) -> Object:
        given = {"field_validation": "Strict", "field_manager": OWNER} | ({"dry_run": "All"} if dry_run else {})
        create = self._custom.create_namespaced_custom_object
        return self._ask(create, GROUP, VERSION, self.namespace, JOBS, job, **given)

    def patch_job(self, name: str, patch: Object) -> Object:
        change = self._custom.patch_namespaced_custom_object
        return self._ask(change, GROUP, VERSION, self.namespace, JOBS, name, patch, **PATCHED)

    def scale_job(self, name: str, replicas: int) -> None:
        change = self._custom.patch_namespaced_custom_object_scale
        patch = {"spec": {"replicas": replicas}}
        self._ask(change, GROUP, VERSION, self.namespace, JOBS, name, patch, **PATCHED)

    # what belongs to them

    def records(self, job: str) -> list[Object]:
        listing = self._custom.list_namespaced_custom_object
        return self._all(listing, GROUP, VERSION, self.namespace, WORKERS, label_selector=f"{JOB_LABEL}={job}")

    def pods(self, job: str) -> list[Object]:
        return self._all(self._core.list_namespaced_pod, self.namespace, label_selector=f"{JOB_LABEL}={job}")

    def pod(self, namespace: str, name: str) -> Object:
        return self._ask(self._core.read_namespaced_pod, name, namespace)

    def claim(self, name: str) -> Object:
        return self._ask(self._core.read_namespaced_persistent_volume_claim, name, self.namespace)

    def events(self) -> list[Object]:
        return self._all(self._core.list_namespaced_event, self.namespace)

    def lease(self, namespace: str, name: str) -> Object:
        return self._ask(self._leases.read_namespaced_lease, name, namespace)

    def may(self, user: str, verb: str, group: str, resource: str) -> bool:
        """Whether `user` may do that in the namespace; `resource` may have a subresource after a slash."""
        kind, _, part = resource.partition("/")
        asked = {"namespace": self.namespace, "verb": verb, "group": group, "resource": kind, "subresource": part}
        body = {"spec": {"user": user, "resourceAttributes": asked}}
        return bool(self._ask(self._reviews.create_subject_access_review, body)["status"]["allowed"])

    # logs

    def log(self, pod: str, container: str, **options: Any) -> str:
        """What is there of it, with a time before each line."""
        with _sentences():
            answer = self._log(pod, container, _request_timeout=REQUEST_SECONDS, **options)
            return str(answer.data.decode(errors="replace"))

    def follow_log(self, pod: str, container: str, **options: Any) -> Iterator[str]:
        """Its lines, with a time before each, as they come; ends when the container does, or nothing has come."""
        with _sentences():
            answer = self._log(pod, container, follow=True, _request_timeout=STREAM_SECONDS, **options)
        rest = b""
        try:
            for chunk in answer.stream(1 << 14, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
        except urllib3.exceptions.HTTPError:
            return  # the caller asks anew, from the last line on
        finally:
            answer.close()
        if rest:
            yield rest.decode(errors="replace")

    def _log(self, pod: str, container: str, **options: Any) -> Any:
        read = self._core.read_namespaced_pod_log
        return read(pod, self.namespace, container=container, timestamps=True, _preload_content=False, **options)

    def _ask(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Object:
        with _sentences():
            answer = call(*arguments, _preload_content=False, _request_timeout=REQUEST_SECONDS, **options)
            if date := answer.headers.get("Date"):
                self.now = parsedate_to_datetime(date)
            body: Object = json.loads(answer.data)
            return body

    def _all(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> list[Object]:
        answer = self._ask(call, *arguments, limit=PAGE, **options)
        items: list[Object] = answer["items"]
        while after := answer["metadata"].get("continue"):
            answer = self._ask(call, *arguments, limit=PAGE, _continue=after, **options)
            items += answer["items"]
        return items


def _own_namespace() -> str:
    """That of the pod, as kubectl has it."""
    try:
        return NAMESPACE_FILE.read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


@contextmanager
def _usable() -> Iterator[None]:
    """Neither our reading of a kubeconfig nor the client's checks what each part of it is."""
    try:
        yield
    except (config.ConfigException, yaml.YAMLError, OSError, *OTHER_SHAPE) as error:
        told = " ".join(str(error).split())
        raise CliError(f"the kubeconfig cannot be used: {told}; see --kubeconfig and --context") from error


@contextmanager
def _sentences() -> Iterator[None]:
    try:
        yield
    except client.ApiException as error:
        raise ApiError(error.status or 0, _sentence(error)) from error
    except urllib3.exceptions.HTTPError as error:
        reason = getattr(error, "reason", None) or error
        raise NoAnswer(f"the API server does not answer: {reason}; see --kubeconfig and --context") from error


def _sentence(error: client.ApiException) -> str:
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body or ""
    try:
        message = printable(str(json.loads(body)["message"]))
    except (ValueError, KeyError, TypeError):
        message = f"{error.status} {error.reason} {printable(body[:256])}".strip()
    if error.status == 401:
        return f"the API server does not know who you are ({message}): log in anew"
    if error.status == 404 and "the server could not find the requested resource" in message + body:
        return "the cluster has no ElasticJobs: install the chart, or choose another --context"
    return message
