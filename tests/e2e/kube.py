# SPDX-License-Identifier: Apache-2.0
"""A namespace and what is in it, watches that remember what they saw, and waits that say what they waited for.

What the tests themselves need goes to the API server (api.py); `kubectl` and `run` are for what a user types.
"""

import contextlib
import http.client
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from e2e import api
from e2e.api import as_kubectl_shows, resource
from e2e.place import CLUSTER, ENVIRONMENT, USUAL, Failed, Object
from support import lateness, waiting
from support.waiting import Deadline

__all__ = ["CLUSTER", "ENVIRONMENT", "USUAL", "Failed", "Object"]

T = TypeVar("T")

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

# Tests run beside each other on few cores: a deadline only ends what would never come.
BUSY = 3  # times the seconds that a wait takes at most on a machine at rest
CAUGHT_UP_SECONDS = 30

TIMED_OUT = "timed out waiting for"  # as kubectl and helm say it


class Answer(NamedTuple):
    code: int
    output: str
    errors: str


def run(*command: str, stdin: str | None = None, seconds: float = 60) -> Answer:
    """Run a command to its end, whatever that is; it may take `BUSY` times `seconds`. Raises Deadline."""
    done = waiting.run(command, BUSY * seconds, input=stdin, env=ENVIRONMENT)
    return Answer(done.returncode, done.stdout, done.stderr)


def succeed(*command: str, stdin: str | None = None, seconds: float = 60) -> str:
    """Run a command and return what it prints. Raises Failed, and Deadline where it has waited in vain."""
    answer = run(*command, stdin=stdin, seconds=seconds)
    if answer.code and TIMED_OUT in answer.errors:
        raise Deadline(" ".join(command), seconds, answer.errors)
    if answer.code:
        raise Failed(f"{' '.join(command)}\n{answer.errors}")
    return answer.output


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    return succeed("kubectl", *arguments, stdin=stdin)


def first_address_is_ipv6() -> bool:
    """Whether nodes, pods and services have an address of IPv6 first, or alone."""
    return ":" in kubectl("get", "service/kubernetes", "--namespace=default", "--output=jsonpath={.spec.clusterIP}")


def in_url(address: str) -> str:
    """As URLs have it: one of IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address


def wait_until(what: str, probe: Callable[[], T | None], seconds: float, seen: Callable[[], object] | None = None) -> T:
    """Ask `probe` five times a second until it gives something. Raises Deadline after `BUSY` times `seconds`."""
    found = waiting.wait_until(what, probe, BUSY * seconds, seen, pause=0.2)
    lateness.pause("test")
    return found


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of one test or test module."""

    name: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return kubectl("--namespace", self.name, *arguments, stdin=stdin)

    @contextlib.contextmanager
    def following(self, pod: str, container: str) -> Iterator["Following"]:
        """`kubectl logs --follow` of a container; what is done meanwhile begins when a line of it has come."""
        command = ["kubectl", "--namespace", self.name, "logs", pod, "--container", container, "--follow"]
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
            try:
                followed = Following(process)
                wait_until(f"a line of {pod}", lambda: followed.lines, 30)
                yield followed
            finally:
                process.kill()

    def try_kubectl(self, *arguments: str, stdin: str | None = None) -> Answer:
        return run("kubectl", "--namespace", self.name, *arguments, stdin=stdin)

    def apply(self, *objects: Mapping[str, Any], dry_run: bool = False) -> None:
        """As `kubectl apply` does: make these objects; one that is there kubectl itself changes. Raises Failed."""
        there = []
        for body in objects:
            try:
                self._create(body, {"dryRun": "All"} if dry_run else {})
            except api.Refused as refused:
                if refused.code != http.client.CONFLICT:
                    raise
                there.append(json.dumps(body))
        if there:
            options = ["--dry-run=server"] if dry_run else []
            self.kubectl("apply", "--filename", "-", *options, stdin="\n---\n".join(there))

    def _create(self, body: Mapping[str, Any], options: Mapping[str, str]) -> None:
        meta, notes = body["metadata"], body["metadata"].get("annotations", {})
        place = {"namespace": self.name} if resource(body["kind"], body["apiVersion"]).namespaced else {}
        applied = {**body, "metadata": {**meta, **place, "annotations": notes}}
        noted = {**applied, "metadata": {**meta, **place, "annotations": {**notes, LAST_APPLIED: json.dumps(applied)}}}
        path = resource(body["kind"], body["apiVersion"]).path(self.name)
        api.call("POST", path, noted, fieldManager="kubectl-client-side-apply", fieldValidation="Strict", **options)

    def delete(self, kind: str, name: str) -> None:
        """As `kubectl delete` does, without waiting for its end. Raises Failed."""
        api.call("DELETE", resource(kind).path(self.name, name), {"propagationPolicy": "Background"})

    def patch(self, kind: str, name: str, patch: object, *part: str) -> None:
        """A merge patch of an object, or of its subresource that `part` names. Raises Failed."""
        api.call("PATCH", resource(kind).path(self.name, name, *part), patch, kind=api.MERGE)

    def refusal(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl says when it refuses; fails when it does not."""
        answer = self.try_kubectl(*arguments, stdin=stdin)
        assert answer.code, f"kubectl {' '.join(arguments)} was not refused: {answer.output}"
        return answer.errors

    def get(self, kind: str, name: str) -> Object:
        found = resource(kind)
        return as_kubectl_shows(api.call("GET", found.path(self.name, name)), found)

    def has(self, kind: str, name: str) -> bool:
        """Whether it is there. Raises Failed, not for a 404."""
        try:
            self.get(kind, name)
        except api.Refused as refused:
            if refused.code != http.client.NOT_FOUND:
                raise
            return False
        return True

    def list(self, kind: str, **selectors: str) -> list[Object]:
        """All of a kind; `labelSelector` and `fieldSelector` select."""
        found = resource(kind)
        items: list[Object] = api.call("GET", found.path(self.name), **selectors)["items"]
        return [as_kubectl_shows(item, found) for item in items]


@dataclass(frozen=True, slots=True)
class Sighting:
    """One state of an object, and when (monotonic seconds) the watch told of it."""

    at: float
    deleted: bool
    body: Object

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def version(self) -> int:
        """Of all objects of a kind the newest has the highest."""
        return int(self.body["metadata"]["resourceVersion"])


class Following:
    """The lines that a process prints, as `kubectl logs --follow` does, until it ends."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.lines: list[str] = []
        self._process = process
        self._reader = threading.Thread(target=self._read, name="what is followed", daemon=True)
        self._reader.start()

    def whole(self, seconds: float = 60) -> str:
        """All of them, once it has ended. Raises Deadline."""
        waiting.joined(self._reader, BUSY * seconds)
        return "".join(self.lines)

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append(line)


class Watch:
    """All states of the objects of one kind in a namespace, as a watch tells them.

    Should the API server end the watch, it goes on from there; where the API server has forgotten what happened since,
    that stays unseen.
    """

    def __init__(self, namespace: Namespace, kind: str) -> None:
        self.sightings: list[Sighting] = []
        self._of = resource(kind)
        self._path = self._of.path(namespace.name)
        self._version: str | None = None
        self._connection = api.connect(api.SILENT_SECONDS)
        self._closed = threading.Event()
        self._reader = threading.Thread(target=self._read, name=f"watch {kind}", daemon=True)
        self._reader.start()

    def of(self, name: str) -> list[Sighting]:
        return [sighting for sighting in list(self.sightings) if sighting.name == name]

    def present(self) -> dict[str, Object]:
        """The objects that exist, by name."""
        latest = {sighting.name: sighting for sighting in list(self.sightings)}
        return {name: sighting.body for name, sighting in latest.items() if not sighting.deleted}

    def catch_up(self) -> None:
        """Until it has told of all that the API server has done by now: another watch may be ahead of this one."""
        listing = api.call("GET", self._path)
        now = int(listing["metadata"]["resourceVersion"])
        there = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in listing["items"]}

        def behind() -> list[str]:
            latest = {sighting.name: sighting for sighting in list(self.sightings)}
            unseen = [name for name, number in there.items() if name not in latest or latest[name].version < number]
            gone = (one for name, one in latest.items() if name not in there and one.version <= now)
            return unseen + [one.name for one in gone if not one.deleted]

        wait_until(
            f"the watch of {self._path} to tell of what is there", lambda: not behind(), CAUGHT_UP_SECONDS, behind
        )

    def close(self) -> None:
        self._closed.set()
        wait_until(f"the end of the watch of {self._path}", self._has_ended, seconds=20)

    def _has_ended(self) -> bool:
        if (open_socket := self._connection.sock) is not None:
            with contextlib.suppress(OSError):  # closed meanwhile
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)  # below TLS, which its reader is using
        self._reader.join(0.05)
        return not self._reader.is_alive()

    def _read(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, Failed):
                self._follow()
            self._connection.close()
            self._closed.wait(0.2)

    def _follow(self) -> None:
        for event in api.watch(self._connection, self._path, self._version):
            if event["type"] == "ERROR":
                self._version = None
                return
            self._version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                body = as_kubectl_shows(event["object"], self._of)
                sighting = Sighting(time.monotonic(), event["type"] == "DELETED", body)
                lateness.pause(self._reader.name)
                self.sightings.append(sighting)
