# SPDX-License-Identifier: Apache-2.0
"""Starts sidecars quickly: each is a process of its own, forked from one that has imported everything."""

import asyncio
import logging
import multiprocessing
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

from elasticjob_sidecar.api_server.in_cluster import InCluster
from elasticjob_sidecar.app import Ports, run
from elasticjob_sidecar.config import Config
from support.pod_life import new_credentials
from support.programs import die_with_parent

_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload([__name__, "contract.imported"])


def start_sidecar(environment: Mapping[str, str], secrets: Path, address: str, log: Path) -> BaseProcess:
    """A sidecar that listens at `address`, with its pod's token and ca.crt in `secrets`; its output goes to `log`."""
    process = _fork.Process(target=_run, args=(dict(environment), secrets, address, log), daemon=True)
    process.start()
    return process


def _run(environment: dict[str, str], secrets: Path, address: str, log: Path) -> None:
    die_with_parent()  # the server that forks, which ends with the tests
    with log.open("ab") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    server = replace(InCluster.load(environment), token=secrets / "token", authority=secrets / "ca.crt")
    config = Config.from_env({**environment, "ELASTICJOB_STATE_DIR": str(secrets)})
    logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    ports = replace(Ports.of(config), loopback=address, health_host=address)
    asyncio.run(run(config, new_credentials(), ports, server))
