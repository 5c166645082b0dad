# SPDX-License-Identifier: Apache-2.0
"""Keeps a prestarted process for each of an agent's training processes: when to start one, and its further life.

`learned` knows their early imports.

The first ones may exist before torchrun has imported torch (`ahead`). Later ones are started while a round trains,
after its own start: when the training processes have imported nothing for a while.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from elasticjob_torch.warm import room
from elasticjob_torch.warm.handed import HandedProcesses
from elasticjob_torch.warm.learned import Learned
from elasticjob_torch.warm.orders import Read
from elasticjob_torch.warm.process import PrestartedProcess, Start
from elasticjob_torch.warm.reserve import Reserve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

_REST = 4.0  # times as long as it works, beside a training
_QUIET_SECONDS = 3.0
_TICK_SECONDS = 0.5
_LOOK_SECONDS = 0.1  # between two checks of the memory for prestarted processes
_AGAIN_SECONDS = 60.0  # before imports that were not taken are reported again


class Pool:
    """The prestarted processes of one agent, by local rank. Only the agent's main thread may call `start`, `expects`
    and `take`.

    Args:
        given: what to import early while this pod has learned nothing.
        cautious: whether a process is prestarted only if twice the memory reserved for the training is free.
    """

    def __init__(self, given: Sequence[str] = (), *, cautious: bool = False) -> None:
        self._learned = Learned(given)
        self._on_learned: Callable[[list[str]], bool] | None = None
        self._sent: list[str] = []
        self._tell_from = 0.0
        self._lock = threading.RLock()
        self._prestarted: dict[int, PrestartedProcess] = {}
        self._starts: dict[int, Start] = {}
        self._reserve = Reserve(cautious=cautious)
        self._has_logged_why = False
        self._off = ""
        self._handed = HandedProcesses(self._learned, self._blame)
        self._changed = time.monotonic()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Watch the processes from now on, in a thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="elasticjob-warm", daemon=True)
            self._thread.start()

    def give(self, imports: Sequence[str]) -> None:
        """Set what another pod of the job has learned; what this one learns replaces it."""
        with self._lock:
            self._learned.give(imports)

    def tell(self, on_learned: Callable[[list[str]], bool]) -> None:
        """Call ``on_learned``, in the pool's thread, with process 0's imports when they are new and complete for now.

        They are complete once a prestarted process has done them: only then is it known how many of them others can do.
        If it returns False, it is called again later.
        """
        self._on_learned = on_learned

    def start(self, local_rank: int, start: Start, rest: float = 0.0) -> None:
        """Start a prestarted process, if there is something to import, and enough memory. Raises nothing."""
        with self._lock:
            imports = self._learned.imports(local_rank)
            is_wanted = bool(imports) and local_rank not in self._prestarted
            if self._closed.is_set() or self._off or not is_wanted or not self._reserve.has_room(self._importing()):
                return
            if any(map(os.isatty, start.outputs)):
                self._stop("they write to a terminal, which early imports would not see")
                return
            try:
                self._prestarted[local_rank] = PrestartedProcess(
                    start, imports, self._learned.states(local_rank), self._learned.late, rest
                )
            except OSError as error:
                self._stop(f"no process can be prestarted: {error}")

    def living(self) -> set[str]:
        """Return the ids of the starts of all prestarted processes."""
        with self._lock:
            return {prestarted.id for prestarted in self._prestarted.values()}

    def is_ready(self) -> bool:
        """Say whether all prestarted processes have finished their imports."""
        with self._lock:
            return all(prestarted.modules for prestarted in self._prestarted.values())

    def expects(self, local_rank: int, start: Start) -> str:
        """Note that a training process is started now; return the file for its notes of imports.

        Raises:
            OSError: there is no descriptor left.
        """
        with self._lock:
            self._note(local_rank, start)
            return self._learned.new_file(local_rank)

    def take(self, local_rank: int, start: Start, learn: str = "") -> Any:
        """Return the ``Popen`` of a prestarted process that now runs the script as ordered, or None.

        A prestarted process that differs from one started now is ended.
        """
        with self._lock:
            prestarted = self._prestarted.pop(local_rank, None)
            if prestarted is None:
                return None
            why = prestarted.differs(start)
            if why is None and not prestarted.hand_over(start, learn):
                why = "the prestarted process has ended"
            if why is not None:
                log.info("training process %d starts in the ordinary way: %s", local_rank, why)
                prestarted.end()
                return None
            self._learned.begins_with(local_rank, prestarted.imports)
            self._handed.add(local_rank, prestarted)
            return prestarted.popen

    def has_killed(self) -> bool:
        """Say whether a training process was killed since the last call because it did not reach its script."""
        with self._lock:
            return self._handed.has_killed()

    def give_up(self, why: str) -> None:
        """End all prestarted processes, and prestart no more; ``why`` is logged."""
        with self._lock:
            self._stop(why)
            self._end_prestarted()

    def close(self) -> None:
        """End all prestarted processes. May be called again."""
        self._closed.set()
        with self._lock:
            self._end_prestarted()
            self._handed.let_go()
            for start in self._starts.values():
                start.close()
            self._starts.clear()
        self._learned.close()

    def _end_prestarted(self) -> None:
        for prestarted in self._prestarted.values():
            prestarted.end()
        self._prestarted.clear()

    def _note(self, local_rank: int, start: Start) -> None:
        if (earlier := self._starts.get(local_rank)) is not None:
            earlier.close()
        self._starts[local_rank] = start.kept()
        self._changed = time.monotonic()

    def _watch(self) -> None:
        due = 0.0
        while not self._closed.is_set():
            try:
                self._hear(min(_TICK_SECONDS, _LOOK_SECONDS) if self._prestarted else _TICK_SECONDS)
                self._end_if_short()
                if time.monotonic() < due:
                    continue
                due = time.monotonic() + _TICK_SECONDS
                with self._lock:
                    if not self._closed.is_set():
                        if self._learned.read():
                            self._changed = time.monotonic()
                        self._refill()
                self._tell_learned()
            except Exception:
                log.exception("the watch over prestarted processes ends")
                self.give_up("nobody watches prestarted ones any more")
                self._await_handed()
                return

    def _hear(self, seconds: float) -> None:
        with contextlib.closing(selectors.DefaultSelector()) as selector:
            with self._lock, contextlib.suppress(ValueError, OSError):
                for each in (*self._prestarted.values(), *self._handed.processes.values()):
                    selector.register(each.link, selectors.EVENT_READ)
            if not selector.get_map():
                self._closed.wait(seconds)
                return
            selector.select(seconds)
        with self._lock:
            for local_rank, prestarted in list(self._prestarted.items()):
                self._hear_prestarted(local_rank, prestarted)
            self._handed.hear()

    def _await_handed(self) -> None:
        """Give the processes that have their orders time to report, up to a limit."""
        while self._handed.processes and not self._closed.wait(_TICK_SECONDS):
            with self._lock:
                self._handed.hear()

    def _hear_prestarted(self, local_rank: int, prestarted: PrestartedProcess) -> None:
        messages = prestarted.receive()
        for message in messages or ():
            if "doing" in message:
                prestarted.doing = message["doing"]
            elif "ready" in message:
                prestarted.modules, prestarted.doing = message["ready"], ""
                prestarted.imports = self._learned.compare(
                    prestarted.imports, prestarted.states, message["done"], message["differs"]
                )
                self._reserve.measured(prestarted.popen.pid)
                self._tell_of_prestarted()
            elif "unfit" in message:
                for found in message["unfit"]:
                    self._blame(Read(*found))
        if messages is None:
            del self._prestarted[local_rank]
            prestarted.end(kill=False)
            code = prestarted.popen.returncode
            if code == -signal.SIGKILL or not prestarted.doing:
                self._stop(f"a prestarted process ended, exit code {code}")
            else:
                doing = prestarted.doing
                self._blame(Read(doing, "", f"a prestarted process ended in {doing}, exit code {code}"))
        elif any("unfit" in message for message in messages):
            del self._prestarted[local_rank]
            prestarted.end()

    def _tell_of_prestarted(self) -> None:
        """Log that all processes for the next round are ready, or before this worker's first round, as in a spare, all
        that were started for it."""
        imports = self._learned.imports
        ready = [
            prestarted.modules for rank, prestarted in self._prestarted.items() if prestarted.imports == imports(rank)
        ]
        which, needed = ("next", self._starts) if self._starts else ("first", self._prestarted)
        if len(ready) == len(needed) and all(ready):
            log.info("prestarted for the %s round: processes %d, modules %d", which, len(ready), max(ready))

    def _blame(self, found: Read) -> None:
        if found.early_import in ("", "sitecustomize"):
            self._stop(found.why)
        elif self._learned.leave_out(*found):
            self._stop("too many imports cannot be early")

    def _stop(self, why: str) -> None:
        if not self._off:
            log.info("processes start in the ordinary way from now on: %s", why)
            self._off = why

    def _tell_learned(self) -> None:
        """Report new imports; without the lock, as the call may take long."""
        if self._on_learned is None or time.monotonic() < self._tell_from:
            return
        with self._lock:
            names = self._learned.shared() if self._is_complete() else self._sent
        if names == self._sent:
            return
        if self._on_learned(names):
            self._sent = names
        else:
            self._tell_from = time.monotonic() + _AGAIN_SECONDS

    def _is_complete(self) -> bool:
        """Say whether nothing more can be found out now about process 0's imports."""
        if time.monotonic() - self._changed < _QUIET_SECONDS:
            return False
        prestarted = self._prestarted.get(0)
        if prestarted is None:
            return bool(self._off) or self._reserve.lacks_room  # otherwise one is to come
        return prestarted.modules > 0 and prestarted.imports == self._learned.imports(0)

    def _refill(self) -> None:
        if time.monotonic() - self._changed < _QUIET_SECONDS:
            return
        busy = self._importing()
        for local_rank, start in self._starts.items():
            prestarted = self._prestarted.get(local_rank)
            if prestarted is not None:
                imports = self._learned.imports(local_rank)
                if prestarted.modules and imports[: len(prestarted.imports)] != prestarted.imports:
                    del self._prestarted[local_rank]  # a new order makes a new process
                    prestarted.end()
                elif prestarted.modules and imports != prestarted.imports:
                    prestarted.ask(imports, self._learned.states(local_rank), self._learned.late, _REST)
            elif not self._learned.imports(local_rank):
                self._tell_of_nothing(local_rank)
            elif busy < max(1, room.cpus() // 4):
                self.start(local_rank, start, _REST)
                busy += 1

    def _tell_of_nothing(self, local_rank: int) -> None:
        """Log why nothing was learned, once that is known. Imports that were left out are logged at that time."""
        if not self._has_logged_why and self._learned.is_without(local_rank):
            self._has_logged_why = True
            log.info(
                "processes start in the ordinary way: nothing can be imported early, as the script changes its "
                "environment, or starts a thread or a program, before its first import"
            )

    def _importing(self) -> int:
        """Return how many prestarted processes have not reported the end of their imports."""
        return sum(not prestarted.modules for prestarted in self._prestarted.values())

    def _end_if_short(self) -> None:
        """End all prestarted processes when the training needs their memory, before the kernel ends the container."""
        if self._prestarted and (why := self._reserve.shortage()):
            self.give_up(why)
