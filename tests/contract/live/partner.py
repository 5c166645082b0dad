# SPDX-License-Identifier: Apache-2.0
"""The other member of a group of two, a process of its own, which fails while that forms. It says that it `BEGINS`.

`tells`: in some rounds it tells its address and does not connect; then it ends.
`connects`: it connects, and stands still until something that comes sends it into the next round.
`receives`: it connects, begins to receive a tensor, says so, and stands still.
`trains`: it connects, and is late with its collective.
`sends`: it connects, and is killed while it sends a large tensor.
`averages`, `sparseaverages`: it connects, and averages the gradients of one step.
"""

import contextlib
import fcntl
import functools
import itertools
import os
import signal
import sys
import termios
import threading
import time
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from elasticjob_torch.live import connecting
from elasticjob_torch.live.backend import Gloo
from elasticjob_torch.live.collectives import Collectives
from elasticjob_torch.live.links import Links
from elasticjob_torch.live.reducing import average_gradients
from elasticjob_torch.live.rounds import Place
from elasticjob_torch.live.torch_private import renew

HOST = "127.0.0.1"
BEGINS = "begins"
TIMEOUT = timedelta(minutes=30)
LATE_SECONDS = 10.0
SENT_BYTES = 200 << 20  # far more than a connection takes up
UNDER_WAY_BYTES = 64 << 10  # that wait in a connection: no other message is as long
ROUNDS = 6  # by chance it is the one or the other that opens the connection


class Gone(Exception):
    """In place of a wait for the other member."""


class TellsAndGoes(dist.Store):
    """A store by which gloo tells all of this member, and which waits for nothing of the other one."""

    def __init__(self, store: dist.Store) -> None:
        super().__init__()
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def wait(self, keys: list[str], *_: object) -> None:
        if not self._store.check(keys):
            raise Gone


def main(test: Connection, rank: int, port: int, when: str) -> None:
    """`port`: the store's, on loopback."""
    connecting.connect_alone(Gloo())  # which imports what a first group needs
    connecting.disconnect()
    test.send(BEGINS)
    ways = {
        "tells": tells,
        "connects": functools.partial(connects, test),
        "receives": functools.partial(receives, test),
        "trains": trains,
        "sends": sends,
    }
    for sparse in (False, True):
        ways["sparse" * sparse + "averages"] = functools.partial(averaged, sparse=sparse)
    ways[when](rank, port)


def tells(rank: int, port: int) -> None:
    server = dist.TCPStore(HOST, port, is_master=False, wait_for_workers=False)
    for number in range(1, ROUNDS + 1):
        store = TellsAndGoes(dist.PrefixStore(f"elasticjob/live/{number}", server))
        store.set(f"here/{rank}", b"")
        with contextlib.suppress(Gone, RuntimeError):
            dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=TIMEOUT)
        connecting.disconnect()


def connects(test: Connection, rank: int, port: int) -> None:
    for number in itertools.count(1):
        connecting.disconnect()
        connecting.connect(Place(number, rank, 2, HOST, port), Links(), TIMEOUT, Gloo())
        test.recv()


def receives(test: Connection, rank: int, port: int) -> None:
    connecting.connect(Place(1, rank, 2, HOST, port), Links(), TIMEOUT, Gloo())
    work = dist.broadcast(torch.empty(1), src=1 - rank, async_op=True)
    test.send(BEGINS)
    test.recv()
    del work


def trains(rank: int, port: int) -> None:
    connecting.connect(Place(1, rank, 2, HOST, port), Links(), TIMEOUT, Gloo())
    time.sleep(LATE_SECONDS)
    dist.all_reduce(torch.ones(1))
    dist.barrier()


def sends(rank: int, port: int) -> None:
    links = Links()
    connecting.connect(Place(1, rank, 2, HOST, port), links, TIMEOUT, Gloo())
    tensor = torch.ones(SENT_BYTES, dtype=torch.uint8)
    dist.barrier()
    threading.Thread(target=dies_in_a_message, args=([one for (one, _), *_ in links._new()],)).start()
    dist.broadcast(tensor, src=rank)


def dies_in_a_message(descriptors: list[int]) -> None:
    while max(map(unsent_bytes, descriptors)) < UNDER_WAY_BYTES:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


def unsent_bytes(descriptor: int) -> int:
    """What waits in a connection to be taken by the other end."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def averaged(rank: int, port: int, sparse: bool) -> list[float]:
    """The gradients of four rows, of which rank 0 uses the first and the third, and rank 1 the second and the third."""
    connecting.connect_alone(Gloo())
    ddp = DistributedDataParallel(torch.nn.Embedding(4, 1, sparse=sparse))
    connecting.disconnect()
    connecting.connect(Place(1, rank, 2, HOST, port), Links(), TIMEOUT, Gloo())
    ddp, collectives = renew(ddp, {}), Collectives()
    average_gradients(ddp, collectives)
    ddp(torch.tensor([rank, 2])).sum().backward()
    collectives.wait(dist.barrier(async_op=True))
    collectives.settle()
    gradients = ddp.module.weight.grad
    return (gradients.to_dense() if sparse else gradients).flatten().tolist()
