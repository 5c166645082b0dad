# SPDX-License-Identifier: Apache-2.0
"""The work of a prestarted process between Python's own start and its script: early imports, then a wait for orders.

`sitecustomize` calls `prestart`, which returns when the process is to train. Otherwise it never returns: the process
ends when its agent does. It leaves nothing of its own behind: no module, no descriptor, no patched class. It may use
only modules that each training process imports anyway (`agent.record`, `agent.stacks`), so that ``sys.modules`` is as
in an ordinary start.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from elasticjob_torch.warm.files import file_state, pour, read_text, write_text
from elasticjob_torch.warm.gentle import Gentle
from elasticjob_torch.warm.learning import learn, leave_nothing, script_folder
from elasticjob_torch.warm.lifeline import Lifeline
from elasticjob_torch.warm.orders import HEADER_BYTES, LEARN, PRESTARTED, Read, decode, differing, encode, invalidated
from elasticjob_torch.warm.patches import Patches
from elasticjob_torch.warm.reads import Reads
from elasticjob_torch.warm.script import AsInScript
from elasticjob_torch.warm.state import difference, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OUTPUTS = (1, 2)
_START = "ELASTICJOB_START"  # `environment.START`: of this process, whatever its orders contain
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # known with the orders
_CUSTOMIZE = "sitecustomize"
_OOM = "/proc/self/oom_score_adj"
_ALONE = 1  # the exit code when the agent is gone
_OOM_PRESTARTED = "1000"  # if memory runs out, this process ends first


def prestart(customize: Callable[[], None], record_exception: Callable[[dict[str, str]], None]) -> None:
    """Do the script's imports and wait until this process is to train.

    Args:
        customize: runs the image's own ``sitecustomize``, as in an ordinary start before the script.
        record_exception: called before that with an environment, which is updated at the end.
    """
    record = {**os.environ, _ERROR_FILE: "not known yet"}
    record_exception(record)
    process = Prestarted(*map(int, os.environ.pop(PRESTARTED).split()))
    try:
        process.begin()
        process.do(customize)
        process.work()
        process.end()
        process.start(record)
    except _Unfit as unfit:
        process.start_anew(unfit.found)
    except BaseException as error:
        process.start_anew([Read("", "", f"a prestarted process met {type(error).__name__}: {error}")])
    with contextlib.suppress(Exception):
        _leave_nothing()


class _Unfit(Exception):
    """This process cannot replace an ordinary start; names the imports to blame, if any."""

    def __init__(self, name: str, why: str, *, found: Sequence[Read] = ()) -> None:
        super().__init__(why)
        self.found = list(found) or [Read(name, "", why)]


class Prestarted:
    """A prestarted process, from inside."""

    def __init__(self, descriptor: int, lifeline: int) -> None:
        import _socket  # `socket` imports many modules

        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._lifeline = Lifeline(lifeline)
        self._link = _socket.socket(fileno=descriptor)
        self._peek = _socket.MSG_PEEK
        self._rights = _socket.CMSG_LEN(len(_OUTPUTS) * 4)
        self._reads = Reads()
        self._patches = Patches()
        self._gentle = Gentle(script_folder(sys.argv), self._rest)
        self._as_in_script = AsInScript()
        self._done = 0  # number of requested imports that are done
        self._received = b""
        self._passed = b""
        self._messages: list[dict[str, Any]] = []
        self._orders: dict[str, Any] = {}
        self._oom = ""
        self._kept: list[int] = []
        self._files: dict[str, tuple[int, int]] = {}
        self._affinity = os.sched_getaffinity(0)
        self._folder = os.getcwd()
        self._path = list(sys.path)

    def begin(self) -> None:
        """Redirect the outputs, and make this process the first to end when memory runs out."""
        for output in _OUTPUTS:
            memory = os.memfd_create("output", os.MFD_CLOEXEC)
            kept = self._descriptor + output  # high, so that the script's own have their usual numbers
            os.dup2(memory, kept, inheritable=False)
            os.close(memory)
            os.dup2(kept, output)
            self._kept.append(kept)
        self._oom = read_text(_OOM).strip()
        if self._oom:
            for value in (_OOM_PRESTARTED, self._oom, _OOM_PRESTARTED):
                if not write_text(_OOM, value):
                    raise _Unfit("", "a process here cannot set its oom_score_adj, or not set it back")
        self._reads.begin()
        self._gentle.begin()

    def do(self, customize: Callable[[], None]) -> None:
        """Run the image's sitecustomize. Raises `_Unfit` if it does what only a process of its own can do."""
        from importlib.machinery import PathFinder

        customize()
        self._check_lists()
        if self._reads.of:
            self._reads.of = {name: [Read(_CUSTOMIZE, *reads[0][1:])] for name, reads in self._reads.of.items()}
        self._path = list(sys.path)
        self._patches.accept()
        self._check("")
        if PathFinder.find_spec("usercustomize") is not None:
            raise _Unfit("", "there is a usercustomize, which runs later")
        self._as_in_script.begin()
        self._path = list(sys.path)

    def work(self) -> None:
        """Do the requested imports until there are orders. Raises `_Unfit`."""
        while not self._orders:
            message = self._next()
            if "environment" in message:
                self._orders = message
                return
            self._gentle.times, self._gentle.late = message["rest"], frozenset(message["late"])
            self._import_all(message["imports"], message["states"])

    def end(self) -> None:
        """Restore what `begin` has changed, except for the outputs."""
        self._gentle.end()
        self._reads.end()
        self._as_in_script.end()
        if self._oom:
            write_text(_OOM, self._oom)

    def start(self, record: dict[str, str]) -> None:
        """Carry out the orders. Raises `_Unfit` if this process differs from one just started."""
        orders = self._orders
        given: dict[str, str] = orders["given"]
        ordered: dict[str, str] = orders["environment"]
        if found := invalidated(given, dict(os.environ), ordered, self._reads.of) or self._edited():
            raise _Unfit("", "", found=found)
        self._lifeline.cut()
        self._take_outputs()
        for output, kept in zip(_OUTPUTS, self._kept, strict=True):
            pour(kept, output)
            os.close(kept)
        self.say({"warm": len(sys.modules), "done": self._done})
        self._link.close()
        for name in differing(given, ordered):
            if name in ordered:
                os.environ[name] = ordered[name]
            else:
                os.environ.pop(name, None)
        record.update(ordered)
        if (logging := sys.modules.get("logging")) is not None:  # its times are relative to its import
            whole = isinstance(logging._startTime, int)
            logging._startTime = time.time_ns() if whole else time.time()  # type: ignore[attr-defined]
        if orders["learn"]:
            learn(orders["learn"], self._patches)

    def say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._link.settimeout(None)
            self._link.sendall(encode(message))

    def _import_all(self, names: list[str], states: dict[str, str]) -> None:
        """Import these until there is something else to do, or the script was in another state before the next one."""
        differs = None
        for name in names[self._done :]:
            if self._is_called():
                return
            if name in states and (differs := difference(states[name], fingerprint())) is not None:
                break
            self.say({"doing": name})
            self._import(name)
            self._done += 1
        self.say({"ready": len(sys.modules), "done": self._done, "differs": differs})

    def _import(self, name: str) -> None:
        self._reads.during = name
        raised: BaseException | None = None
        try:
            __import__(name)
        except ModuleNotFoundError as error:  # the absence of the module itself changes nothing
            raised = None if error.name and f"{name}.".startswith(f"{error.name}.") else error
        except BaseException as error:
            raised = error
        if self._gentle.refused:
            raise _Unfit(name, f"{name} imports {self._gentle.refused}")
        self._check_lists()
        if raised is not None:
            raise _Unfit(name, f"{name} raises {type(raised).__name__}: {raised}")
        self._check(name)
        self._note_files()
        self._patches.accept()

    def _check_lists(self) -> None:
        """Raise `_Unfit` if an import used a value that may differ in the next round from a list of all variables."""
        if (fault := self._reads.fault()) is not None:
            raise _Unfit("", "", found=[fault])

    def _check(self, name: str) -> None:
        """Raise `_Unfit` if the last import has left something that differs from an ordinary start, or a GPU in use."""
        who = name or _CUSTOMIZE
        if sys.path[: len(self._path)] != self._path:  # entries that Python adds later would precede it
            raise _Unfit(name, f"{who} changes sys.path")
        if os.getcwd() != self._folder:
            raise _Unfit(name, f"{who} changes the working directory")
        if _thread._count():
            raise _Unfit(name, f"{who} starts a thread")
        if read_text(f"/proc/self/task/{os.getpid()}/children").strip():
            raise _Unfit(name, f"{who} starts a process")
        with contextlib.suppress(OSError):
            for number in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/self/fd/{number}").startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri")):
                        raise _Unfit(name, f"{who} opens a GPU")

    def _note_files(self) -> None:
        """Note the state of modules' files outside the Python installation, as users edit those."""
        fixed = (f"{sys.prefix}/lib", f"{sys.base_prefix}/lib", *sys.modules["elasticjob_torch"].__path__)
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file not in self._files and not file.startswith(fixed):
                self._files[file] = file_state(file)

    def _edited(self) -> list[Read]:
        changed = [file for file, state in self._files.items() if file_state(file) != state]
        return [Read("", "", f"{file} has changed") for file in changed[:1]]

    def _next(self) -> dict[str, Any]:
        while not self._messages:
            self._link.settimeout(None)
            self._receive()
        return self._messages.pop(0)

    def _receive(self) -> None:
        received, passed, _, _ = self._link.recvmsg(65536, 4 * self._rights)
        if not received:
            os._exit(_ALONE)
        for _, _, descriptors in passed:
            self._passed += descriptors
        self._messages, self._received = decode(self._received + received)

    def _is_called(self) -> bool:
        """Say whether a message has come; ends the process if its agent has ended."""
        if self._messages:
            return True
        self._link.settimeout(0)
        return self._peeked()

    def _rest(self, seconds: float) -> None:
        if not self._messages:  # received messages leave the link silent
            self._link.settimeout(seconds)
            if self._peeked():
                self._gentle.times = 0.0

    def _peeked(self) -> bool:
        try:
            received = self._link.recv(HEADER_BYTES, self._peek)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            received = b""
        if not received:
            os._exit(_ALONE)
        return True

    def start_anew(self, found: list[Read]) -> NoReturn:
        """Become an ordinary start of the command: a new interpreter in the same process.

        Its agent is told why. If it has already ordered this process to train, it would take its end for the script's;
        if not, it ends this process now.
        """
        import signal

        self._lifeline.cut()
        self.say({"unfit": found})
        while not self._orders:
            message = self._next()
            self._orders = message if "environment" in message else {}
        self.end()
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self._affinity)
            os.chdir(self._folder)
        for each in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(each, signal.SIG_DFL)
        self._take_outputs()
        own = {LEARN: self._orders["learn"]} if self._orders["learn"] else {}
        if _START in os.environ:
            own[_START] = os.environ[_START]
        os.execve(sys.executable, sys.orig_argv, self._orders["environment"] | own)

    def _take_outputs(self) -> None:
        while len(self._passed) >= 4:
            output = 3 - len(self._passed) // 4
            passed = int.from_bytes(self._passed[:4], sys.byteorder)
            os.dup2(passed, output)
            os.close(passed)
            self._passed = self._passed[4:]


def _leave_nothing() -> None:
    leave_nothing()
    if "socket" not in sys.modules:
        sys.modules.pop("_socket", None)
