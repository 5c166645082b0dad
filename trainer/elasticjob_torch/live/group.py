# SPDX-License-Identifier: Apache-2.0
"""The group that a training script sees: one step is one `with` block, and a broken step is done again."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from elasticjob_torch.live.attempts import Attempts
from elasticjob_torch.live.backend import Backend, Gloo
from elasticjob_torch.live.belonging import belongs
from elasticjob_torch.live.collectives import Collectives
from elasticjob_torch.live.connecting import connect, connect_alone, disconnect
from elasticjob_torch.live.ended import EndedGroup, drop
from elasticjob_torch.live.ending import Ending
from elasticjob_torch.live.links import Links
from elasticjob_torch.live.reducing import average_gradients
from elasticjob_torch.live.refusals import refuse, refuse_state
from elasticjob_torch.live.rounds import NoNextRound, Rounds, rounds_of
from elasticjob_torch.live.state import Registry, Stateful
from elasticjob_torch.live.step import Beginning, Steps
from elasticjob_torch.live.torch_private import begin_anew, renew, subgroups
from elasticjob_torch.live.transfer import CannotShare, Hello, StateVersion, gather, receive, send, sender
from elasticjob_torch.script.api import forget_round

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

log = logging.getLogger(__name__)

# Between two cuts of a group that forms: its connections come one after the other.
_CUT_AGAIN_SECONDS = 0.05


def elastic(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    schedulers: Iterable[Any] = (),
    state: Mapping[str, Stateful] | None = None,
    step: int = 0,
    on_change: Callable[[int, int], object] | None = None,
    ddp: Mapping[str, Any] | None = None,
    timeout: timedelta = timedelta(minutes=30),
) -> Group:
    """Wrap the model in DDP, join the training's group, and return it once all members have the same state.

    From now on this process lives through changes of the group. All members have the state of the one that has trained
    furthest: the model's parameters and buffers, the optimizer, the schedulers, and ``state``.

    Outside an ElasticJob the same script runs alone, or below a plain torchrun, which restarts it at a change.

    Args:
        schedulers: learning rate schedulers, stepped after each step of the optimizer; the script does not step them.
        state: what else members have in common, by name: objects with ``state_dict`` and ``load_state_dict``.
        step: how many steps the loaded checkpoint has behind it.
        on_change: called with rank and world size in each new group, the first included.
        ddp: options of ``DistributedDataParallel``.
        timeout: of each collective.

    Raises:
        CannotLive: the training cannot live through changes; the message names the object and the remedy.
        CannotShare: the members have different models.
        NoNextRound: this process has no place in the job any more; let it end.
    """
    options = dict(ddp or {})
    refuse(model, optimizer, options, subgroups())
    return Group(model, optimizer, list(schedulers), state or {}, step, on_change, options, timeout)


class Group:
    """The members that train together now; made by `elastic`.

        for step in group.steps(total):
            with group:
                train(group.model, step)

    Attributes:
        model: the model in DDP. Another object may stand here after a change.
        rank, size: of this process, and the number of processes.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        schedulers: list[Any],
        state: Mapping[str, Stateful],
        step: int,
        on_change: Callable[[int, int], object] | None,
        options: dict[str, Any],
        timeout: timedelta,
        rounds: Rounds | None = None,
        backend: Backend | None = None,
    ) -> None:
        self._module, self._schedulers, self._options, self._timeout = model, schedulers, options, timeout
        self._parameters = [one for group in optimizer.param_groups for one in group["params"]]
        numbered = {f"scheduler {number}": one for number, one in enumerate(schedulers)}
        self._registry = Registry(model, {"optimizer": optimizer, **numbered, **state})
        refuse_state(self._registry)
        self._others = list(state.values())
        self._on_change = on_change
        self._steps = Steps(step)
        self._shared = 0  # the last round in which this process had the state of all
        self._ending = Ending()
        self._ended: list[EndedGroup] = []  # until neither a reducer nor the script holds them
        self._links = Links()
        self._collectives = Collectives()
        self._forming: Links | None = None  # the same, while the group forms
        self._backend = backend if backend is not None else Gloo()
        self.rank, self.size = 0, 1
        # wrapped before it joins, in a world of one, so that others do not wait for this
        connect_alone(self._backend)
        self.model = DistributedDataParallel(model, **options)
        self._ended.append(EndedGroup(disconnect(), self._collectives.wait_until_ended))
        optimizer.register_step_pre_hook(self._settle)
        optimizer.register_step_post_hook(self._applied)
        self._rounds = rounds if rounds is not None else rounds_of(os.environ)
        self._rounds.hear(self._round_is_over)
        self._stays = False  # the next step belongs to the round in use: `steps` has asked
        self._is_in_step = False
        self._saves = 0  # how many saves are under way, one in another
        self._form()

    @property
    def step(self) -> int:
        """The number of the step that is next, or under way, from 0."""
        return self._steps.number

    def steps(self, total: int) -> Iterator[int]:
        """Yield the number of each step up to ``total``, again if it broke; at the end wait until all have done them.

        A script that ends its loop earlier calls `finish` itself.
        """
        while self.step < total:
            if self._all_leave():
                self._form()  # the others may have gone further meanwhile
                continue
            self._stays = True
            yield self.step
        self.finish()

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Within the block this process saves: if its round is over, the others wait for it longer than for one that is
        otherwise busy, up to the job's ``spec.rendezvous.saveSeconds``."""
        self._saves += 1
        self._rounds.saves(True)
        try:
            yield
        finally:
            self._saves -= 1
            if not self._saves:
                self._rounds.saves(False)

    def finish(self) -> None:
        """Wait until all members have done this process's steps: nobody leaves while another needs its state."""
        while True:
            try:
                if not self._ending.agreed(self._collectives, over=False):
                    self._ending.settle()
                    self._collectives.wait(dist.barrier(async_op=True))
                    self._collectives.settle()
                    return
            except RuntimeError as error:
                if not self._can_go_on(error):
                    raise
            try:
                self._form()
            except NoNextRound as error:
                log.info("the steps are done, and the others go on without this process: %s", error)
                return

    def __enter__(self) -> Group:
        """Begin a step; outside `steps` first go into the next round, if all have agreed to."""
        while not self._stays and self._all_leave():
            self._form()
        self._stays = False
        beginning = Beginning(self._module.buffers())

        def restore() -> None:
            beginning.restore(self._parameters)
            for one in self._others:
                begin_anew(one)

        self._steps.begin(restore)
        self._is_in_step = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """End the step. An error that belongs to the group ends here: the step is done again in the next round."""
        if error is None and not self._steps.applied:  # AMP has skipped it, and may have done so for undefined numbers
            try:
                self._settle()
            except RuntimeError as broken:
                if not self._end_broken(broken):
                    raise
                return True
        if error is not None:
            return self._end_broken(error)
        self._is_in_step = False
        self._steps.end()
        return False

    def _end_broken(self, error: BaseException) -> bool:
        """End a step by an error; return whether it belongs to the group, which then is another."""
        self._is_in_step = False
        if not self._can_go_on(error):
            return False
        self._steps.broken()
        self._form()
        return True

    def _all_leave(self) -> bool:
        """Say whether all members go into the next round before the next step. To be called once for each step."""
        over = self._rounds.is_over()
        try:
            return self._ending.agreed(self._collectives, over=over) if self.size > 1 else over
        except RuntimeError as error:
            if not self._can_go_on(error):
                raise
            return True

    def _settle(self, *_: Any) -> None:
        if self._is_in_step:
            self._backend.settle(self._links)

    def _applied(self, *_: Any) -> None:
        if not self._is_in_step:
            return
        self._steps.mark_applied()
        for scheduler in self._schedulers:
            scheduler.step()

    def _can_go_on(self, error: BaseException) -> bool:
        if not self._rounds.lives or not belongs(error, self._links):
            return False
        log.info("step %d: the group broke: %s", self.step, str(error)[:200])
        self._links.cut()  # those that wait for this process hear of it
        return True

    def _form(self) -> None:
        """Go into the next round, and the one after it if that breaks; return when all members have one state.

        Raises:
            NoNextRound: this process has no place in a next round, or the group has failed to form twice in a row.
        """
        attempts = Attempts()
        while True:
            place = self._rounds.following()
            attempts.begin(place)
            forget_round()
            self._part()
            links = self._forming = self._links = Links()
            collectives = self._collectives = Collectives()
            links.ends_with(collectives.cut)
            try:
                if self._rounds.is_over():  # heard before there was anything to cut
                    continue
                connect(place, links, self._timeout, self._backend)
                self.rank, self.size = place.rank, place.size
                self.model = renew(self.model, self._options)
                average_gradients(self.model, collectives)
                self._ending.reset()  # it keeps a tensor of the old group, for which `drop` waits
                self._share(place.round, links, collectives)
                log.info("round %d: rank %d of %d, step %d", place.round, self.rank, self.size, self.step)
                if self._on_change is not None:
                    self._on_change(self.rank, self.size)
                drop(self._ended)
                self._ended = []
                return
            except CannotShare:
                raise
            except RuntimeError as error:
                heard = links.were_cut()
                links.cut()
                if not self._rounds.lives or not belongs(error, None):
                    raise
                log.info("round %d did not form: %s", place.round, str(error)[:200])
                attempts.failed(error, heard=heard)
            finally:
                self._forming = None

    def _part(self) -> None:
        """End the last group, if there is one."""
        if not self._links.are_broken():
            self._ending.reset()
            self._collectives.settle()
        self._ended.append(EndedGroup(disconnect(), self._collectives.wait_until_ended))
        self._links.leave()

    def _share(self, number: int, links: Links, collectives: Collectives) -> None:
        members = gather(Hello(StateVersion(self._shared, self.step), self._registry.shape()), collectives)
        links.formed()
        versions = [member.version for member in members]
        source = sender(versions)
        if source == self.rank:
            send(self._registry, source, collectives)
        elif source is not None:
            if versions[source].round == 0 or versions[self.rank] != versions[source]:
                self._shared = -1  # until the last tensor has come
            receive(self._registry, source, collectives)
            self._shared = max(0, versions[self.rank].round)
            self._steps.number = versions[source].step
        collectives.wait(dist.barrier(async_op=True))  # nobody counts the state as shared before all have it
        self._shared = number

    def _round_is_over(self) -> None:
        """In the listening thread: end the group's collectives, unless all members leave it together.

        A group that trains is left alone while all its members are there: each of them takes part in the collectives of
        each step until all leave after the same one (`Ending`), so nobody waits for one that has left. A group that
        forms is cut: others may pass it over, and no step is lost with it.
        """
        links = self._links
        if self._rounds.is_cut() or not links.have_formed():
            links.cut()
            if self._forming is links:
                threading.Thread(target=self._cut_again, args=(links,), daemon=True).start()

    def _cut_again(self, links: Links) -> None:
        while self._forming is links:
            time.sleep(_CUT_AGAIN_SECONDS)
            links.cut()
