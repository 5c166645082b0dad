# SPDX-License-Identifier: Apache-2.0
"""Torchruns and training processes that begin with torch imported. The import takes seconds of a processor, and most
tests do not show it.

`forks` has one process that has imported torch, and forks others from it. `fork_training` lets a torchrun get its
training processes in the same way: torch's agent asks for a process as ever, with a command, an environment and files,
and gets a child of its own in a new session. That child is no fork of the agent. It comes from a process that was
forked before the agent existed, so it has neither the agent's threads nor its state.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import io
import json
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any, NoReturn

from support.waiting import Deadline

SITECUSTOMIZE = Path(__file__).resolve().parents[2] / "trainer/sitecustomize.py"
PR_SET_CHILD_SUBREAPER = 36
MOST_BYTES = 1 << 20  # of a command with its environment
FORK_SECONDS = 100.0  # for what takes a hundredth of a second

forks = multiprocessing.get_context("forkserver")
# One list for all that is forked, as there is one server. An optimizer and DDP import torch._dynamo.
forks.set_forkserver_preload(
    [
        "torch.distributed.run",
        "torch._dynamo",
        "contract.trainers",
        "contract.live.trainer",
        "contract.live.partner",
        "contract.imported",
    ]
)


def fork_training() -> None:
    """In a process that is going to be torchrun's, before it has any thread: fork its training processes."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        here.close()
        _serve(there)
    there.close()
    here.settimeout(FORK_SECONDS)
    SubprocessHandler._popen = lambda handler, args, env: _Forked(  # type: ignore[method-assign, assignment]
        here, args, env=env, stdout=handler._stdout, stderr=handler._stderr, start_new_session=True
    )


class _Forked(subprocess.Popen[bytes]):
    """`python -u SCRIPT ARGUMENT...`, forked by the process behind `server`."""

    def __init__(self, server: socket.socket, args: Any, **given: Any) -> None:
        self._server = server
        super().__init__(args, **given)

    def _execute_child(self, *given: Any) -> None:
        """What `Popen` calls to start a process; it sees to what comes before and after."""
        asked = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments
        command = list(asked["args"])
        assert command[:2] == [sys.executable, "-u"], f"no script of this Python: {command}"
        order = {"script": command[2:], "environment": asked["env"], "folder": str(Path.cwd())}
        files = [own if asked[name] == -1 else asked[name] for name, own in (("c2pwrite", 1), ("errwrite", 2))]
        _adopt_orphans(True)
        try:
            socket.send_fds(self._server, [json.dumps(order).encode()], files)
            self.pid = int(self._server.recv(MOST_BYTES))
        except TimeoutError as error:
            raise Deadline(f"a fork to run {command[2:]}", FORK_SECONDS) from error
        _adopt_orphans(False)
        self._child_created = True


def _adopt_orphans(adopts: bool) -> None:
    """Whether a process whose parent ends becomes this one's child, if it descends from it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopts))


def _serve(orders: socket.socket) -> NoReturn:
    """Fork until torchrun has ended. A fork's parent ends at once, so that it becomes torchrun's child."""
    while True:
        order, files, _, _ = socket.recv_fds(orders, MOST_BYTES, 2)
        if not order:
            os._exit(0)
        read_end, write_end = os.pipe()
        between = os.fork()
        if not between:
            ours = os.getpid()
            if child := os.fork():
                os.write(write_end, str(child).encode())
                os._exit(0)
            while os.getppid() == ours:
                time.sleep(0.001)
            _train(**json.loads(order), files=files)
        os.waitpid(between, 0)
        orders.send(os.read(read_end, 64))
        for each in (read_end, write_end, *files):
            os.close(each)


def _unbuffered(number: int, before: Any) -> Any:
    """As `-u`."""
    raw: Any = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, before.encoding, before.errors, write_through=True)


def _train(script: list[str], environment: dict[str, str], folder: str, files: list[int]) -> NoReturn:
    """Be a Python that has just been started with this script."""
    os.setsid()
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = _unbuffered(1, sys.stdout), _unbuffered(2, sys.stderr)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = script
    sys.path.insert(0, str(Path(script[0]).parent))
    runpy.run_path(str(SITECUSTOMIZE))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = script[0]
    code: Any = 0
    try:
        exec(compile(Path(script[0]).read_bytes(), script[0], "exec", dont_inherit=True), vars(main))
    except SystemExit as ended:
        code = ended.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    # As the interpreter's end, but for the end of torch's own objects: a second of a processor
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(code or 0)
