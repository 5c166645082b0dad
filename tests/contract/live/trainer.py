# SPDX-License-Identifier: Apache-2.0
"""A training process that lives through changes, and can be told at which point of a step it is killed."""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import elasticjob_torch
from elasticjob_torch.live import transfer

BATCH, WIDTH, PIECE_BYTES = 60, 24, 1000
LARGE_BYTES, LARGE_SECONDS = 128 << 20, 0.01  # a piece, and how long it is sent until its sender is killed
SAVE_SECONDS = 0.5
POINTS = ("forward", "backward", "gradients", "optimizer", "loss", "send", "receive", "formed", "save", "piece")


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(BATCH, 8, generator=generator, dtype=torch.float64)
    return x, x.sum(1, keepdim=True).sin()


def make() -> tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(1)
    layers = [torch.nn.Linear(8, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1)]
    model = torch.nn.Sequential(*layers).double()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9995)


def uninterrupted(total: int) -> list[float]:
    """The losses of a training of one process."""
    model, optimizer, scheduler = make()
    losses = []
    for step in range(total):
        x, y = batch_of(step)
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


class Large:
    """A state that takes a while to send."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(LARGE_BYTES, dtype=torch.uint8)

    def state_dict(self) -> dict[str, Any]:
        return {"tensor": self.tensor}

    def load_state_dict(self, given: dict[str, Any]) -> None:
        self.tensor = given["tensor"]


class Trainer:
    def __init__(self, folder: Path, name: str, pace: float) -> None:
        self.log = (folder / f"{name}.jsonl").open("a", buffering=1)
        self.dies, self.total, self.pace = folder / f"{name}.dies", folder / "total", pace
        self.dawdles, self.saves = folder / f"{name}.dawdles", folder / "saves"
        self.state = {"large": Large()} if (folder / "large").exists() else {}
        self.point = ""

    def tell(self, **said: Any) -> None:
        self.log.write(json.dumps({"at": time.time(), "pid": os.getpid(), **said}) + "\n")

    def reaches(self, point: str) -> None:
        """Be killed, if it is to be at this point."""
        if not self.point and self.dies.exists():
            self.point = self.dies.read_text()
        if self.point == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def changed(self, rank: int, size: int) -> None:
        self.reaches("formed")
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        self.tell(change=digest.hexdigest(), rank=rank, size=size, start=os.environ.get("TORCHELASTIC_RESTART_COUNT"))

    def run(self) -> None:
        self.model, optimizer, scheduler = make()
        for name in ("send", "receive"):
            self.dies_in(name)
        group = elasticjob_torch.elastic(
            self.model, optimizer, schedulers=[scheduler], state=self.state, on_change=self.changed
        )
        while not self.total.exists() or group.step < int(self.total.read_text()):
            with group:
                self.train(group, optimizer)
            if self.saves.exists() and group.step % 10 == 0:
                try:
                    with group.saving():
                        self.save()
                    self.tell(saved=group.step)
                except RuntimeError:
                    self.tell(unsaved=group.step)
        group.finish()
        self.tell(end=group.step)

    def train(self, group: Any, optimizer: torch.optim.Optimizer) -> None:
        x, y = batch_of(group.step)
        mine = slice(group.rank * BATCH // group.size, (group.rank + 1) * BATCH // group.size)
        optimizer.zero_grad()
        if self.dawdles.exists():
            seconds = float(self.dawdles.read_text())
            self.dawdles.unlink()
            self.tell(dawdles=group.step)
            time.sleep(seconds)
        self.reaches("forward")
        loss = ((group.model(x[mine]) - y[mine]) ** 2).mean()
        self.reaches("backward")
        loss.backward()
        self.reaches("gradients")
        optimizer.step()
        self.tell(applied=group.step)
        self.reaches("optimizer")
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        self.reaches("loss")
        self.tell(step=group.step, loss=whole.item() / group.size, rank=group.rank, size=group.size)
        time.sleep(self.pace)

    def save(self) -> None:
        """As a save that all members do together: it begins and ends with a collective."""
        dist.barrier()
        self.reaches("save")
        time.sleep(SAVE_SECONDS)
        dist.barrier()

    def dies_in(self, name: str) -> None:
        """Be killed after some pieces of a transfer, if it is to be there."""
        transfer._PIECE_BYTES = LARGE_BYTES if self.state else PIECE_BYTES
        inner = getattr(transfer, name)

        def outer(*args: Any) -> None:
            broadcast, pieces = dist.broadcast, []

            def piece(*args: Any, **kwargs: Any) -> Any:
                pieces.append(1)
                if len(pieces) == 4:
                    self.reaches(name)
                if args[0].nbytes == LARGE_BYTES:
                    threading.Timer(LARGE_SECONDS, self.reaches, ("piece",)).start()
                return broadcast(*args, **kwargs)

            dist.broadcast = piece
            try:
                inner(*args)
            finally:
                dist.broadcast = broadcast

        from elasticjob_torch.live import group

        setattr(group, name, outer)


def main(folder: str, name: str, pace: float, environment: dict[str, str]) -> None:
    """The whole process."""
    torch.set_num_threads(1)
    output = os.open(f"{folder}/{name}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    faulthandler.register(signal.SIGUSR1)
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        Trainer(Path(folder), name, pace).run()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)
