# SPDX-License-Identifier: Apache-2.0
"""A control plane for tests: etcd and kube-apiserver as child processes on loopback.

It is to the Kubernetes API what torch's ``EtcdServer`` is to etcd. There are no nodes: objects are stored, validated,
authorised and watched, but pods do not run. Without ``controllers`` owners' objects are not collected, namespaces do
not finish their deletion and get no default service account, and no pod is given a node.
"""

from __future__ import annotations

import atexit
import json
import shutil
import socket
import ssl
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import credentials
from support.ports import free_port
from support.programs import ControlPlaneError, NotInTime, Program, find_program

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from types import TracebackType

_HOST = "127.0.0.1"
_REQUEST_SECONDS = 60.0
_TRIES = 3  # another process may take a free port first


class Refused(ControlPlaneError):
    """The API server answered with an error; ``code`` is its HTTP status, ``answer`` what it said."""

    def __init__(self, code: int, message: str, answer: str = "") -> None:
        super().__init__(message)
        self.code = code
        self._answer = answer

    def names(self, field: str, sentence: str = "") -> bool:
        """Whether it is this field that is refused: with this sentence, where the refusal is a rule of the CRD's.

        The server's own words differ between its versions. Kubernetes 1.30 names a field of a status from there on.
        """
        names = (field, field.removeprefix("status."))
        causes = json.loads(self._answer).get("details", {}).get("causes", [])
        return any(cause.get("field") in names and sentence in cause["message"] for cause in causes)


class ControlPlane:
    """etcd and kube-apiserver, from `start` to `stop`; also a context manager.

    Args:
        directory: where the programs ``etcd`` and ``kube-apiserver`` are. Without it they are looked for in the
            directory that ``KUBEBUILDER_ASSETS`` names, and without that on ``PATH``.
        controllers: whether kube-controller-manager and kube-scheduler, from the same place, run too.
        database_bytes: how large etcd's file may become, where its own bound of 2 GiB is too small.
        start_seconds: how long the start may take.

    Every method raises `ControlPlaneError`; `request` its subclass `Refused` when the server says no. Only the
    standard library is needed.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        controllers: bool = False,
        database_bytes: int | None = None,
        start_seconds: float = 180.0,
    ) -> None:
        self._directory = directory
        self._controllers = controllers
        self._database_bytes = database_bytes
        self._start_seconds = start_seconds
        self._work: Path | None = None
        self._programs: list[Program] = []
        self._server = self._token = ""
        self._database = 0
        self._server_command: list[str] = []
        self._server_program: Program
        self._tls = ssl.create_default_context()

    @classmethod
    def of(cls, kubeconfig: Path) -> ControlPlane:
        """One that another process has started, and stops: for requests."""
        config, plane = json.loads(kubeconfig.read_text()), cls()
        plane._work = kubeconfig.parent
        plane._server = config["clusters"][0]["cluster"]["server"]
        plane._token = config["users"][0]["user"]["token"]
        plane._tls = ssl.create_default_context(cafile=plane.authority)
        return plane

    @property
    def kubeconfig(self) -> Path:
        """The path of a kubeconfig with an administrator's rights; it exists from `start` to `stop`."""
        return self._directory_of_this_start / "kubeconfig"

    @property
    def server(self) -> str:
        """The URL of the API server."""
        self._directory_of_this_start  # noqa: B018
        return self._server

    @property
    def authority(self) -> Path:
        """The path of the certificate, in PEM, that vouches for the API server."""
        return self._directory_of_this_start / "apiserver.crt"

    @property
    def server_pid(self) -> int:
        """The process id of kube-apiserver, while it runs."""
        return self._server_program.pid

    @property
    def pids(self) -> list[int]:
        """The process ids of all programs that run."""
        return [program.pid for program in self._programs]

    @property
    def database(self) -> str:
        """The URL of etcd."""
        return f"http://{_HOST}:{self._database}"

    @property
    def minor_version(self) -> int:
        """Of the API server: 35 of Kubernetes 1.35."""
        return int(self.request("GET", "/version")["minor"].rstrip("+"))

    def start(self) -> None:
        """Start all programs; return when the API server is ready. Stop them with `stop`."""
        if self._work is not None:
            raise ControlPlaneError("this control plane runs already; stop it first")
        etcd, apiserver = (find_program(name, self._directory) for name in ("etcd", "kube-apiserver"))
        names = ("kube-controller-manager", "kube-scheduler") if self._controllers else ()
        controllers = [find_program(name, self._directory) for name in names]
        deadline = time.monotonic() + self._start_seconds
        atexit.register(self.stop)
        for attempt in range(1, _TRIES + 1):
            self._work = Path(tempfile.mkdtemp(prefix="control-plane-"))
            try:
                self._start(etcd, apiserver, deadline)
                for program in controllers:
                    self._run([program, *self._controller_flags(Path(program).name)])
                return
            except BaseException as error:
                self.stop()
                if attempt == _TRIES or "address already in use" not in str(error):
                    raise

    def stop(self) -> None:
        """End all programs and delete their files. Without a `start` it does nothing."""
        atexit.unregister(self.stop)
        while self._programs:
            self._programs.pop().stop()
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
            self._work = None

    def stop_server(self) -> None:
        """End kube-apiserver alone, as if it were away; `start_server` brings it back."""
        if self._server_program in self._programs:
            self._programs.remove(self._server_program)
            self._server_program.stop()

    def start_server(self) -> None:
        """Start kube-apiserver anew at the same address: what is stored is there, watches and caches are gone."""
        if not self._programs or self._server_program in self._programs:
            raise ControlPlaneError("start_server() comes after start() and stop_server()")
        self._server_program = self._run(self._server_command)
        self._server_program.await_ready(self._answers, time.monotonic() + self._start_seconds)

    def __enter__(self) -> ControlPlane:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        token: str | None = None,
    ) -> Any:
        """Make one call and return the JSON of the answer.

        Args:
            path: begins with ``/``, for instance ``/api/v1/namespaces``.
            body: an object to send as JSON, or bytes to send as they are.
            token: says who asks; without one it is the administrator.
        """
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self._token}", "Content-Type": content_type}
        call = urllib.request.Request(self.server + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(call, timeout=_REQUEST_SECONDS, context=self._tls) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                message = error.read().decode(errors="replace")
            raise Refused(error.code, f"{method} {path} was refused with {error.code}: {message}", message) from error
        except OSError as error:
            if isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError):
                raise NotInTime(f"an answer to {method} {path}", _REQUEST_SECONDS) from error.__context__
            raise ControlPlaneError(f"{method} {path} failed: {error}") from error

    def install_crds(self, *files: str | os.PathLike[str], within: float = 180.0) -> None:
        """Create the CustomResourceDefinition of each file (YAML or JSON, one each); wait until they are served."""
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        bodies = [Path(file).read_bytes() for file in files]
        created = [self.request("POST", crds, body, content_type="application/yaml") for body in bodies]
        deadline = time.monotonic() + within
        for crd in created:
            for path in _served_paths(crd):
                while not self._serves(path):
                    if time.monotonic() > deadline:
                        raise NotInTime(f"{path} to be served", within)
                    time.sleep(0.05)

    @property
    def _directory_of_this_start(self) -> Path:
        if self._work is None:
            raise ControlPlaneError("this control plane does not run; call start()")
        return self._work

    def _start(self, etcd: str, apiserver: str, deadline: float) -> None:
        work = self._directory_of_this_start
        self._database = database = free_port()
        secure = free_port()
        bound = [] if self._database_bytes is None else [f"--quota-backend-bytes={self._database_bytes}"]
        self._run([etcd, *_etcd_flags(work, database), *bound]).await_ready(lambda: _accepts(database), deadline)
        self._token = credentials.admin_token()
        credentials.write_private(work / "tokens.csv", credentials.token_file(self._token))
        credentials.write_private(work / "service-accounts.pem", credentials.signing_key())
        flags = _apiserver_flags(work, database, secure)
        if not self._controllers:
            # controllers make the default service account, and take the protection from a claim that is deleted
            flags.append("--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection")
        self._server_command = [apiserver, *flags]
        server = self._server_program = self._run(self._server_command)
        self._server = f"https://{_HOST}:{secure}"
        server.await_ready(lambda: _accepts(secure), deadline)
        self._tls = ssl.create_default_context(cafile=self.authority)
        server.await_ready(self._answers, deadline)
        config = credentials.kubeconfig(self._server, self.authority.read_text(), self._token)
        credentials.write_private(self.kubeconfig, config)

    def _controller_flags(self, name: str) -> list[str]:
        work = self._directory_of_this_start
        flags = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", f"--bind-address={_HOST}"]
        flags += [f"--secure-port={free_port()}", f"--cert-dir={work / name}", "--authentication-skip-lookup=true"]
        if name == "kube-scheduler":
            return flags
        return [
            *flags,
            f"--service-account-private-key-file={work / 'service-accounts.pem'}",
            f"--root-ca-file={self.authority}",
            "--concurrent-gc-syncs=4",
        ]

    def _run(self, command: list[str]) -> Program:
        program = Program(command, self._directory_of_this_start / f"{Path(command[0]).name}.log")
        self._programs.append(program)
        return program

    def _serves(self, path: str) -> bool:
        try:
            self.request("GET", path)
        except Refused as error:
            if error.code in (404, 429):  # not there yet, its storage being made
                return False
            raise
        return True

    def _answers(self) -> bool:
        call = urllib.request.Request(f"{self._server}/readyz", headers={"Authorization": f"Bearer {self._token}"})
        try:
            with urllib.request.urlopen(call, timeout=_REQUEST_SECONDS, context=self._tls):
                return True
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            return False


def started() -> Iterator[ControlPlane]:
    """One that runs until the generator ends; to be made a fixture."""
    with ControlPlane() as plane:
        yield plane


def _etcd_flags(work: Path, port: int) -> list[str]:
    client, peer = f"http://{_HOST}:{port}", f"http://{_HOST}:0"
    return [
        f"--data-dir={work / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # nothing outlives the test
    ]


def _apiserver_flags(work: Path, database: int, port: int) -> list[str]:
    return [
        f"--etcd-servers=http://{_HOST}:{database}",
        f"--bind-address={_HOST}",
        f"--advertise-address={_HOST}",
        f"--secure-port={port}",
        f"--cert-dir={work}",  # where it writes a certificate that it makes for itself
        f"--token-auth-file={work / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={work / 'service-accounts.pem'}",
        f"--service-account-signing-key-file={work / 'service-accounts.pem'}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--kubelet-preferred-address-types=InternalIP",
        # a Service for a server on loopback helps nobody
        "--endpoint-reconciler-type=none",
    ]


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((_HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _served_paths(crd: dict[str, Any]) -> list[str]:
    spec = crd["spec"]
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    return [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}" for version in versions]
