# SPDX-License-Identifier: Apache-2.0
"""The round's TCPStore: how rank 0's agent serves it, and how the others connect; and the store of an agent alone.

It is served with the trainer's own torch, on a socket bound to loopback (``host_name`` alone would still bind every
address), at a new port each round. All agents reach it through their sidecars.
"""

from __future__ import annotations

import socket
from datetime import timedelta

import torch
from torch.distributed import HashStore, Store, TCPStore

_CONNECT_SECONDS = 15.0


def serve_store() -> TCPStore:
    """Start a server for one round, on a free loopback port (``.port``); it lives as long as the object."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)
        port = listener.getsockname()[1]
        return TCPStore(
            "127.0.0.1",
            port,
            is_master=True,
            timeout=timedelta(seconds=_CONNECT_SECONDS),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
            use_libuv=_libuv_takes_a_socket(torch.__version__),
        )
    finally:
        listener.close()


def _libuv_takes_a_socket(version: str) -> bool:
    """Say whether torch's newer server accepts a bound socket: from torch 2.8 on."""
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= (2, 8)


def connect_store(host: str, port: int) -> TCPStore:
    """Connect to the round's store. It blocks, so call it on a `CallThread`."""
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=_CONNECT_SECONDS), wait_for_workers=False)


def store_alone() -> Store:
    """Return a store that only this process uses, for the time in which an agent is in no round."""
    return HashStore()
