# SPDX-License-Identifier: Apache-2.0
"""The client of `contract.cluster`: starts it, tells it what to do, waits for what it shows.

Only the standard library is needed, so that it runs in any trainer's environment.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.waiting import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 240.0  # many jobs may be at work on two cores; longer than the cluster's own limits
SEEN_SECONDS = 100.0  # for which the cluster waits for what it was told to bring about: `serve.SEEN_SECONDS`
STOP_SECONDS = 20.0
LOG_LINES = 60
SPARING = {"GOGC": "400"}  # the API server collects garbage less often: a quarter less work for 100 MB

View = dict[str, Any]


class Plane:
    """A cluster without machines that runs already; `logs` holds what its processes print."""

    def __init__(self, port: int = 0, logs: Path = Path()) -> None:
        self.port, self.logs = port, logs

    def call(self, command: str, answer_within: float = WAIT_SECONDS, **arguments: Any) -> Any:
        """Do a command of `contract/cluster/serve.py`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=answer_within)
        with contextlib.closing(connection):
            try:
                connection.request("POST", f"/{command}", json.dumps(arguments))
                answer = json.loads(connection.getresponse().read())
            except TimeoutError as error:
                raise Deadline(f"the cluster's answer to {command}", answer_within) from error
        if "late" in answer:
            raise Deadline(f"{command}: {answer['late']}", SEEN_SECONDS)
        if "error" in answer:
            raise RuntimeError(f"{command}: {answer['error']}")
        return answer["result"]

    def kubeconfig(self) -> Path:
        """An administrator's."""
        return Path(self.call("kubeconfig"))

    def log_of(self, name: str) -> str:
        """The end of a log: "cluster", "operator" or a pod's."""
        path = self.logs / f"{name}.log"
        if not path.exists():
            return ""
        return "\n".join(path.read_text(errors="replace").splitlines()[-LOG_LINES:])

    @contextlib.contextmanager
    def job(self, **spec: Any) -> Iterator[Job]:
        """An ElasticJob, deleted at the end."""
        name = self.call("create", spec=spec)
        try:
            yield Job(self, name)
        finally:
            self.call("delete", job=name)


class OwnPlane(Plane):
    """One that is started and ended here: `start` and `stop`, or a context manager."""

    def __init__(self) -> None:
        super().__init__()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OwnPlane:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it with the Python that ELASTICJOB_DEV_PYTHON names (default: this one)."""
        self.logs = Path(tempfile.mkdtemp(prefix="contract-"))
        python = os.environ.get("ELASTICJOB_DEV_PYTHON", sys.executable)
        folders = [str(ROOT / name) for name in ("core", "operator", "sidecar", "trainer", "tests")]
        path = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
        with (self.logs / "cluster.log").open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", "contract.cluster", str(self.logs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, **SPARING},
                start_new_session=True,  # Ctrl-C is for the tests, which then stop it
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()  # ends with the process, whose own start has a deadline
        if not line:
            why = self.log_of("cluster")
            self.stop()
            raise RuntimeError(f"the cluster did not start:\n{why}")
        self.port = int(line)

    def stop(self) -> None:
        """Without a `start` it does nothing."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.logs, ignore_errors=True)


class Job:
    """One ElasticJob and its pods, as they are seen."""

    def __init__(self, plane: Plane, name: str) -> None:
        self.plane, self.name = plane, name

    def view(self, after: int = 0, seconds: float = 0.0) -> View:
        """The job, its pods and its records; `seconds` to wait for a version newer than `after`."""
        view: View = self.plane.call("view", seconds + WAIT_SECONDS, job=self.name, after=after, seconds=seconds)
        return view

    def wait(self, condition: Callable[[View], Any], what: str, seconds: float = WAIT_SECONDS) -> Any:
        """Return what `condition` says of the view, as soon as that is true."""
        deadline = time.monotonic() + seconds
        version, view = 0, {}
        while (left := deadline - time.monotonic()) > 0:
            view = self.view(version, left)
            version = view["version"]
            if found := condition(view):
                return found
        view = view or self.view()
        late = Deadline(what, seconds, f"{self.name}: {self.told(view)}")
        if rendezvous(view).get("phase") == "Closed":  # what the job lacks now does not come late
            raise AssertionError(f"the job has ended: {late}") from late
        raise late

    def told(self, view: View | None = None) -> str:
        view = view or self.view()
        status = (view["job"] or {}).get("status", {})
        pods = {pod["name"]: (pod["starts"], pod["runs"], pod["deleting"]) for pod in view["pods"]}
        requests = {name: body["spec"].get("request") for name, body in view["workers"].items()}
        return json.dumps({"rendezvous": status.get("rendezvous"), "pods": pods, "requests": requests}, indent=1)

    def patch(self, **spec: Any) -> None:
        self.plane.call("patch", job=self.name, spec=spec)

    def scale(self, replicas: int) -> None:
        self.patch(replicas=replicas)

    def delete_pod(self, name: str) -> None:
        """The pod is deleted; its trainer's end is for the caller to tell."""
        self.plane.call("delete_pod", pod=name)

    def exited(self, name: str, code: int) -> None:
        self.plane.call("exited", pod=name, code=code)

    def pods(self, count: int, seconds: float = WAIT_SECONDS) -> list[View]:
        """The pods whose trainers are to run, by index, once there are `count` of them."""

        def running(view: View) -> list[View] | None:
            found = [pod for pod in view["pods"] if pod["runs"] and not pod["deleting"]]
            return sorted(found, key=lambda pod: pod["index"]) if len(found) == count else None

        found: list[View] = self.wait(running, f"{count} running pods", seconds)
        return found

    def formed(self, round: int, seconds: float = WAIT_SECONDS) -> View:
        """The rendezvous once round `round` is formed."""
        return self._at("Formed", round, seconds)

    def closed(self, outcome: str, seconds: float = WAIT_SECONDS) -> View:
        """The rendezvous once it is closed with `outcome`."""
        found: View = self.wait(
            lambda view: rendezvous(view) if rendezvous(view).get("outcome") == outcome else None, outcome, seconds
        )
        return found

    def _at(self, phase: str, round: int, seconds: float) -> View:
        def reached(view: View) -> View | None:
            found = rendezvous(view)
            return found if (found.get("phase"), found.get("round")) == (phase, round) else None

        found: View = self.wait(reached, f"round {round} to be {phase}", seconds)
        return found


def rendezvous(view: View) -> View:
    found: View = (view["job"] or {}).get("status", {}).get("rendezvous", {})
    return found
