# SPDX-License-Identifier: Apache-2.0
"""A forked training process cannot be told from one that Python starts, but for the modules that it has."""

from __future__ import annotations

import json
import os
import sys
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

from contract.agents import SECONDS
from contract.forked import fork_training, forks
from elasticjob_torch.environment import MARK
from support.waiting import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = """
import atexit, json, os, signal, sys
from pathlib import Path

status = dict(line.partition(":\\t")[::2] for line in Path("/proc/self/status").read_text().splitlines())
atexit.register(print, "at exit")
print(json.dumps({
    "name": [__name__, __file__],
    "arguments": sys.argv,
    "folder": [os.getcwd(), sys.path[0]],
    "environment": dict(os.environ),
    "parent": os.getppid(),
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "descriptors": [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")],
    "threads": status["Threads"],
    "signals": [status["SigBlk"], status["SigIgn"]],
    "handlers": [getattr(handler, "__qualname__", str(handler)) for handler in map(signal.getsignal, range(1, 65))],
    "excepthook": sys.excepthook.__module__,
    "limits": Path("/proc/self/limits").read_text(),
}))
END
"""
ENDS = {
    "return": ("", 0),
    "code": ("sys.exit(3)", 3),
    "sentence": ("sys.exit('no such data')", 1),
    "exception": ("raise ValueError('no such data')", 1),
    "at once": ("os._exit(5)", 5),
    "signal": ("os.kill(os.getpid(), signal.SIGTERM)", -15),
}


# of the handler of this torch, beside those of all
OPTIONS: dict[str, Any] = dict.fromkeys(
    ["numa_options"] if "numa_options" in signature(SubprocessHandler).parameters else []
)


def start(folder: Path, kind: str) -> None:
    """As torch's agent does. In a process of its own, which is not to have a thread."""
    if kind == "forked":
        fork_training()
    os.chdir(folder)
    for end in ENDS:
        error = str(folder / f"{kind}-{end}.error")
        environment = {"RANK": "1", "TORCHELASTIC_ERROR_FILE": error, MARK: f"{os.getpid()}:0:run"}
        files = [str(folder / f"{kind}-{end}.{stream}") for stream in ("out", "err")]
        command = ("-u", str(folder / f"{end}-ends.py"), "--lr=1")
        handler = SubprocessHandler(sys.executable, command, environment, *files, 0, **OPTIONS)
        code = handler.proc.wait(SECONDS)
        (folder / f"{kind}-{end}.code").write_text(str(code))


def run(what: Callable[..., None], *arguments: Any) -> int:
    """The exit code of a process that does it."""
    process = forks.Process(target=what, args=arguments)
    process.start()
    process.join(SECONDS)  # with the start of the process that forks
    if process.exitcode is None:
        process.kill()
        raise Deadline(f"{what.__name__}{arguments}", SECONDS)
    return process.exitcode


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both kinds of process wrote, for each end."""
    made = tmp_path_factory.mktemp("forked")
    for end, (line, _) in ENDS.items():
        (made / f"{end}-ends.py").write_text(SCRIPT.replace("END", line))
    for kind in ("started", "forked"):
        assert run(start, made, kind) == 0
    return made


@pytest.mark.parametrize("end", ENDS)
def test_it_begins_and_ends_as_one_that_was_started(folder: Path, end: str) -> None:
    seen = {}
    for kind in ("started", "forked"):
        assert int((folder / f"{kind}-{end}.code").read_text()) == ENDS[end][1]
        first, *later = (folder / f"{kind}-{end}.out").read_text().splitlines()
        known = json.loads(first)
        assert known["environment"].pop(MARK) == f"{known.pop('parent')}:0:run"
        error = folder / f"{kind}-{end}.error"
        said = json.loads(error.read_text())["message"]["message"] if error.exists() else None
        assert said is not None or end not in ("sentence", "exception")
        printed = (folder / f"{kind}-{end}.err").read_text().splitlines()[-1:]
        assert known["environment"].pop("TORCHELASTIC_ERROR_FILE") == str(error)
        seen[kind] = known, later, said, printed
    for forked, started in zip(seen["forked"], seen["started"], strict=True):
        assert forked == started


def test_only_a_script_of_this_python_is_forked(tmp_path: Path) -> None:
    """Nothing else is started in its place."""
    assert run(_other, tmp_path / "said") == 0
    assert "no script of this Python" in (tmp_path / "said").read_text()


def _other(said: Path) -> None:
    fork_training()
    try:
        SubprocessHandler("/bin/true", (), {}, None, None, 0, **OPTIONS)
    except AssertionError as error:
        said.write_text(str(error))
