# SPDX-License-Identifier: Apache-2.0
"""A pod's containers as processes of this machine: their variables, files, logs and ends.

Nothing is isolated. What a pod has for itself is an address on loopback, a folder for its volumes and its /tmp, and a
mark in the environment of each process, by which all of a container's are found: there is no control group.
"""

import asyncio
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import gettempdir
from typing import Protocol

from contract.cluster.sidecars import start_sidecar
from elasticjob.api import HEALTH_PORT
from elasticjob_operator.objects.pods import PLUGIN_VOLUME
from elasticjob_operator.objects.pods import TRAINER_SOCKET as SOCKET
from support.credentials import kubeconfig, write_private
from support.kubelet import Object
from support.pod_life import environment
from support.ports import free_port
from support.programs import DIES_WITH_PARENT

OPERATOR = "elasticjob/operator:"  # how the name of its image begins
TRAINER = Path(__file__).parents[2] / "trainer"
MARK = "STAND_IN_CONTAINER"
START = "STAND_IN_START"  # which start of a container it is; e2e/agent.py tells the sidecar
LINE_BYTES = 1 << 20
TRAINER_SOCKET = "ELASTICJOB_TRAINER_SOCKET"  # the variable that names it to the sidecar
STAMP = "%Y-%m-%d %H:%M:%S,%f"  # of the sidecar's log


class CannotStart(Exception):
    """A container cannot be made; `reason` and the message are the kubelet's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


Line = tuple[datetime, str]


class Log:
    """What one life of a container printed, line by line with its moment."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def note(self, line: str) -> None:
        self.lines.append((datetime.now(UTC), line))


class LogFile:
    """The same of a sidecar, which stamps its lines itself. One without a moment has that of the line before."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._path, self._begin = path, path.stat().st_size

    @property
    def lines(self) -> list[Line]:
        read, at = [], datetime.now(UTC)
        for line in self._path.read_bytes()[self._begin :].decode(errors="replace").splitlines():
            with suppress(ValueError):
                at = datetime.strptime(line[:23], STAMP).astimezone(UTC)
            read.append((at, line))
        return read


class Running(Protocol):
    """A container's first process."""

    pid: int
    log: Log | LogFile
    health: int | None

    async def wait(self) -> int:
        """Its exit code, as a shell has it: above 128 for a signal."""
        ...

    def signal(self, number: int) -> None: ...


class Process:
    """An ordinary command. `health` is the port of its probes, None where they go to none."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process, self.pid, self.log = process, process.pid, Log()
        self.health: int | None = None
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: list[str], environ: Mapping[str, str], folder: Path) -> "Process":
        """Raises CannotStart."""
        if shutil.which(command[0], path=environ["PATH"]) is None:
            raise CannotStart("StartError", f"exec: {command[0]!r}: executable file not found in $PATH")
        try:
            made = await asyncio.create_subprocess_exec(
                *DIES_WITH_PARENT,
                *command,
                cwd=folder,
                env=environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=LINE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotStart("StartError", f"exec: {command[0]!r}: {error.strerror}") from None
        return cls(made)

    async def wait(self) -> int:
        code = await self._process.wait()
        await self._reading
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def _read(self) -> None:
        """Until its end, or until the last process that it started has closed its output."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.log.note(line.decode(errors="replace").rstrip("\n"))


class Sidecar:
    """The real sidecar, forked from a process that has imported it."""

    def __init__(self, process: BaseProcess, log: LogFile) -> None:
        assert process.pid is not None
        self._process, self.pid, self.log = process, process.pid, log
        self.health: int | None = HEALTH_PORT

    async def wait(self) -> int:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        code = self._process.exitcode or 0
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        # Its parent is the server that forked it, which knows of its end a moment earlier.
        if self._process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass
class Sandbox:
    """`folder` has the pod's own files, `host` those of all nodes; `api_port` is where sidecars find the API server."""

    body: Object
    address: str
    folder: Path
    host: Path
    api_port: int
    volumes: dict[str, Path] = field(default_factory=dict)
    starts: int = 0  # of containers that are no sidecars

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    def prepare(self, config_maps: Mapping[str, Mapping[str, str]], token: str, authority: str) -> None:
        """Make the volumes. `config_maps` are the data of those that the pod mounts, by name; `token` is its own."""
        (self.folder / "tmp").mkdir(parents=True)
        self.secrets.mkdir()
        config = kubeconfig(f"https://127.0.0.1:{self.api_port}", authority, token)
        for name, text in {"token": token, "ca.crt": authority, "kubeconfig": config}.items():
            write_private(self.secrets / name, text)
        for volume in self.body["spec"].get("volumes", ()):
            path = self.folder / "volumes" / volume["name"]
            if "hostPath" in volume:
                path = self.host / volume["hostPath"]["path"].lstrip("/")
            path.mkdir(parents=True, exist_ok=True)
            self.volumes[volume["name"]] = path
            if source := volume.get("configMap"):
                for name, text in config_maps[source["name"]].items():
                    (path / name).write_text(text)
                    (path / name).chmod(source.get("defaultMode", 0o644))
            if volume["name"] == PLUGIN_VOLUME:  # what the sidecar's image does first
                for name in ("elasticjob_torch", "sitecustomize.py"):
                    (path / name).symlink_to(TRAINER / name)
                (path / ".complete").touch()

    async def start(self, container: Object) -> Process:
        """Start a container that is no sidecar. Raises CannotStart."""
        if container["image"].startswith(OPERATOR):
            return await self._start_operator(container)
        self.starts += 1
        mounts = self._mounts(container)
        given = environment({"env": container.get("env") or []}, self.body, self.address, self.body["spec"]["nodeName"])
        environ = {
            "PATH": os.environ["PATH"],
            "HOSTNAME": self.body["metadata"]["name"],
            "TMPDIR": str(self.folder / "tmp"),
            **{name: self._here(value, mounts) for name, value in given.items()},
            MARK: self.mark(container["name"]),
            START: str(self.starts),
        }
        command = [self._here(word, mounts) for word in (*container.get("command", ()), *container.get("args", ()))]
        if not command:
            raise CannotStart("CreateContainerError", "no command specified")
        return await Process.start(command, environ, self.folder)

    async def _start_operator(self, container: Object) -> Process:
        """What its image runs; with ports of its own, as two may share this machine."""
        meta, health = self.body["metadata"], free_port()
        given = environment(container, self.body, self.address, self.body["spec"]["nodeName"])
        flags = [*container["args"], f"--health-port={health}", f"--lease-namespace={meta['namespace']}"]
        environ = {**os.environ, **given, "KUBECONFIG": str(self.secrets / "kubeconfig"), MARK: self.mark("operator")}
        started = await Process.start([sys.executable, "-m", "elasticjob_operator", *flags], environ, self.folder)
        started.health = health
        return started

    def start_sidecar(self, container: Object) -> Sidecar:
        service = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.api_port)}
        given = environment(container, self.body, self.address, self.body["spec"]["nodeName"])
        if TRAINER_SOCKET in given:
            given[TRAINER_SOCKET] = self._here(given[TRAINER_SOCKET], self._mounts(container))
        output = self.folder / "sidecar.log"
        log = LogFile(output)
        return Sidecar(start_sidecar(given | service, self.secrets, self.address, output), log)

    def mark(self, container: str) -> str:
        return str(self.folder / container)

    def processes(self, container: str) -> list[int]:
        """All of a container's processes but a sidecar's, the oldest first."""
        return sorted(marked(self.mark(container)), key=_started)

    def signal(self, container: str, number: int) -> None:
        """To every process of a container but a sidecar's."""
        for pid in self.processes(container):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def remove(self) -> None:
        Path(self._here(SOCKET, {})).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _mounts(self, container: Object) -> dict[str, Path]:
        return {one["mountPath"]: self.volumes[one["name"]] for one in container.get("volumeMounts") or ()}

    def _here(self, text: str, mounts: Mapping[str, Path]) -> str:
        """A word of a command or a variable, with this machine's paths and the pod's own loopback."""
        short = f"{gettempdir()}/elasticjob-{self.body['metadata']['uid'][:13]}"  # a socket's path has 107 characters
        text = text.replace(SOCKET, short)
        for path in sorted(mounts, key=len, reverse=True):
            text = re.sub(rf"(?<![\w/.]){re.escape(path)}(?![\w.-])", str(mounts[path]), text)
        return text.replace("127.0.0.1", self.address)


def marked(mark: str) -> Iterator[int]:
    """The processes of this machine that have this mark, or one that begins so."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found = folder.joinpath("environ").read_bytes()
            except OSError:  # it has ended, or is somebody else's
                continue
            if any(variable.startswith(wanted) for variable in found.split(b"\0")):
                yield int(folder.name)


def _started(pid: int) -> float:
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return time.time()
