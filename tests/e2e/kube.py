# SPDX-License-Identifier: Apache-2.0
"""kubectl as a user types it, watches that remember what they saw, and waits that say what they waited for.

Works on the local cluster of `make cluster` only, whatever cluster the user's own kubeconfig names.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from support import waiting
from support.others import CACHE
from support.waiting import Deadline

Object = dict[str, Any]
T = TypeVar("T")

USUAL = "elasticjob"
CLUSTER = os.environ.get("ELASTICJOB_CLUSTER", USUAL)  # hack/cluster/env.sh names others by version and addresses
ENVIRONMENT = {
    **os.environ,
    "KUBECONFIG": str(CACHE / f"kubeconfig{CLUSTER.removeprefix(USUAL)}"),
    "PATH": f"{CACHE / 'bin'}{os.pathsep}{os.environ['PATH']}",
}

# Tests run beside each other on few cores: a deadline only ends what would never come.
BUSY = 3  # times the seconds that a wait takes at most on a machine at rest


TIMED_OUT = "timed out waiting for"  # as kubectl and helm say it


class Failed(AssertionError):
    """A command ended with an error; the message is what it printed."""


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
    return waiting.wait_until(what, probe, BUSY * seconds, seen, pause=0.2)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of one test or test module."""

    name: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return kubectl("--namespace", self.name, *arguments, stdin=stdin)

    def try_kubectl(self, *arguments: str, stdin: str | None = None) -> Answer:
        return run("kubectl", "--namespace", self.name, *arguments, stdin=stdin)

    def apply(self, *objects: Mapping[str, Any], dry_run: bool = False) -> str:
        """`kubectl apply` of one or more objects. Raises Failed."""
        bodies = "\n---\n".join(json.dumps(body) for body in objects)
        return self.kubectl("apply", "--filename", "-", *(["--dry-run=server"] if dry_run else []), stdin=bodies)

    def refusal(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl says when it refuses; fails when it does not."""
        answer = self.try_kubectl(*arguments, stdin=stdin)
        assert answer.code, f"kubectl {' '.join(arguments)} was not refused: {answer.output}"
        return answer.errors

    def get(self, kind: str, name: str) -> Object:
        body: Object = json.loads(self.kubectl("get", kind, name, "--output", "json"))
        return body

    def list(self, kind: str, *arguments: str) -> list[Object]:
        items: list[Object] = json.loads(self.kubectl("get", kind, "--output", "json", *arguments))["items"]
        return items


@dataclass(frozen=True, slots=True)
class Sighting:
    """One state of an object, and when (monotonic seconds) the watch told of it."""

    at: float
    deleted: bool
    body: Object

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


class Watch:
    """All states of the objects of one kind in a namespace, as `kubectl get --watch` tells them.

    Should the API server end the watch, it begins anew; what happened in between stays unseen.
    """

    def __init__(self, namespace: Namespace, kind: str) -> None:
        self.sightings: list[Sighting] = []
        self._command = ["kubectl", "get", kind, "--namespace", namespace.name]
        self._command += ["--watch", "--output-watch-events", "--output", "json"]
        self._closed = threading.Event()
        self._process = self._open()
        self._reader = threading.Thread(target=self._read, name=f"watch {kind}", daemon=True)
        self._reader.start()

    def of(self, name: str) -> list[Sighting]:
        return [sighting for sighting in list(self.sightings) if sighting.name == name]

    def present(self) -> dict[str, Object]:
        """The objects that exist, by name."""
        latest = {sighting.name: sighting for sighting in list(self.sightings)}
        return {name: sighting.body for name, sighting in latest.items() if not sighting.deleted}

    def close(self) -> None:
        self._closed.set()
        wait_until(f"the end of {' '.join(self._command)}", self._has_ended, seconds=20)

    def _has_ended(self) -> bool:
        self._process.terminate()  # again, should the reader have begun anew
        return not self._reader.is_alive()

    def _open(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT, bufsize=0
        )

    def _read(self) -> None:
        while True:
            with self._process as process:
                for event in _documents(process.stdout):
                    if event["type"] == "ERROR":
                        process.terminate()
                        break
                    self.sightings.append(Sighting(time.monotonic(), event["type"] == "DELETED", event["object"]))
            if self._closed.wait(0.2):
                return
            self._process = self._open()


def _documents(stream: Any) -> Iterator[Object]:
    """The JSON documents of a stream that writes one after the other."""
    decoder, text = json.JSONDecoder(), ""
    while chunk := stream.read(1 << 20):
        text += chunk.decode()
        while text := text.lstrip():
            try:
                document, end = decoder.raw_decode(text)
            except ValueError:
                break  # not whole yet
            yield document
            text = text[end:]
