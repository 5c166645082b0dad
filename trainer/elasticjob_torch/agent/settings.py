# SPDX-License-Identifier: Apache-2.0
"""The settings of a handler: endpoint, run id and ``--rdzv-conf`` from torchrun; times from the job's environment.

Pure: no environment, no sockets, no torch. Every error names the option at fault.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from elasticjob_torch import wire
from elasticjob_torch.agent.busy import Patience
from elasticjob_torch.sidecar.address import UNIX, Address

if TYPE_CHECKING:
    from collections.abc import Mapping

SIDECAR = "PET_RDZV_ENDPOINT"  # read by torchrun, whose option takes precedence
MAX_RESTARTS = "PET_MAX_RESTARTS"  # likewise
STOP_SECONDS = "ELASTICJOB_STOP_SECONDS"
SAVE_SECONDS = "ELASTICJOB_SAVE_SECONDS"
REJOIN_SECONDS = "ELASTICJOB_REJOIN_SECONDS"
STORE_READY_SECONDS = "ELASTICJOB_STORE_READY_SECONDS"
_STORE_SECONDS = 300.0  # as in torch's own store
_TORCHS_STOP_SECONDS = 30.0  # torch's own time for processes that do not end at SIGTERM
_ROUNDS_END_SECONDS = 60.0  # until this worker has heard that the round has ended

# Keys that a command line for torch's own backends may contain; refusing them would break it.
_WITHOUT_EFFECT = {
    "timeout": "",  # always sent by torchrun itself
    # a timeout here would end torchrun, as its worker's failure, while pods of other workers are missing
    "join_timeout": ": spec.rendezvous.joinTimeoutSeconds, the job's own, runs only while there are pods to wait for",
    # how long one heartbeat may take to be written
    "heartbeat": ": the sidecar writes the heartbeats, and tries each again until it is written",
    "heartbeat_timeout": ": the sidecar writes the heartbeats, and tries each again until it is written",
    "read_timeout": "",
    "is_host": "",
    "store_type": "",
    # of torch's etcd backends
    "etcd_prefix": "",
    "protocol": "",
    "cacert": "",
    "cert": "",
    "key": "",
    "ca_cert": "",
    "ssl_cert": "",
    "ssl_cert_key": "",
    # how long to wait after another writer was faster
    "cas_backoff_max_seconds": ": the operator alone writes the state of the rendezvous",
}
_WAITS = ("close_timeout", "sidecar_timeout")
_NUMBERS = ("last_call_timeout", "keep_alive_interval", "keep_alive_max_attempt")
_KNOWN = (*_WAITS, *_NUMBERS, *_WITHOUT_EFFECT)

# torch's defaults, if only one of the two is given
_KEEP_ALIVE_INTERVAL = 5
_KEEP_ALIVE_MAX_ATTEMPT = 3


class SettingsError(ValueError):
    """An option of torchrun that the backend cannot use; the message names it."""


@dataclass(frozen=True)
class Settings:
    """How to reach the sidecar, and how long to wait. All times are in seconds."""

    address: Address
    run_id: str
    close_timeout: float = 30.0
    """How long to wait until a leave, finish or close is recorded."""
    sidecar_timeout: float = 120.0
    """How long the sidecar may be unreachable (it starts on a busy node, or restarts) before that is an error."""
    last_call_timeout: int | None = None
    """How long a round that has its minimum waits for more workers. None (the default): the job's own
    ``spec.rendezvous.lastCallSeconds``. The longest among all agents applies."""
    worker_lost: int | None = None
    """``keep_alive_interval`` times ``keep_alive_max_attempt``: how long this worker may be silent before it is lost.
    None (the default): the job's own ``spec.rendezvous.workerLostSeconds``."""
    stop_timeout: float | None = None
    """How long processes may take to end after SIGTERM when their round is over. None: torch's own time."""
    save_timeout: float = 0.0
    """How long a process that lives through changes may save when its round is over."""
    rejoin_timeout: float = math.inf
    """How long a worker whose round is over may take to join again before it is replaced. Infinite if not known."""
    store_ready: float | None = None
    """How long rank 0 may take to serve the round's store before the operator ends the round."""
    max_restarts: int | None = None
    """How often an agent may start its processes again after a failure, whatever its command line says. The operator
    counts failures, and its number has no bound. None: as the command line says."""
    ignored: tuple[str, ...] = ()
    """Sentences about keys that were accepted but have no effect."""

    @property
    def limits(self) -> dict[str, int]:
        """Return the limits that a join sends to the sidecar in place of the job's."""
        named = {"last_call": self.last_call_timeout, "worker_lost": self.worker_lost}
        return {name: seconds for name, seconds in named.items() if seconds is not None}

    @property
    def patience(self) -> Patience:
        """How long processes that live through changes may be busy when their round is over."""
        stop = _TORCHS_STOP_SECONDS if self.stop_timeout is None else self.stop_timeout
        return Patience(self.save_timeout, self.rejoin_timeout, stop)

    @property
    def store_timeout(self) -> float:
        """How long to wait for the round's store: the operator ends a round without one earlier."""
        return max(_STORE_SECONDS, (self.store_ready or 0.0) + _ROUNDS_END_SECONDS)


def parse_settings(
    endpoint: str, run_id: str, config: Mapping[str, Any], environment: Mapping[str, str] = MappingProxyType({})
) -> Settings:
    """Check torchrun's options, and the job's times in the environment, and return them as `Settings`.

    Raises:
        SettingsError: the endpoint is not the sidecar's, a key of --rdzv-conf is unknown, or a value is not an allowed
            number.
    """
    address = _parse_endpoint(endpoint)
    of_this_pod = environment.get(SIDECAR, "")
    if of_this_pod and address != _parse_endpoint(of_this_pod):
        raise SettingsError(
            f"--rdzv-endpoint '{endpoint}' is not this pod's sidecar, {of_this_pod}; leave the option out"
        )
    for key in config:
        if key not in _KNOWN:
            raise SettingsError(f"--rdzv-conf has the unknown key '{key}'; known are: {', '.join(_KNOWN)}")
    ignored = (
        f"--rdzv-conf {key} has no effect with this backend{_WITHOUT_EFFECT[key]}"
        for key in config
        if key in _WITHOUT_EFFECT and key != "timeout"
    )
    numbers = {key: _parse_number(key, config[key]) for key in _NUMBERS if key in config}
    return Settings(
        address=address,
        run_id=run_id,
        last_call_timeout=numbers.get("last_call_timeout"),
        worker_lost=_worker_lost(numbers),
        stop_timeout=_of_the_job(STOP_SECONDS, environment),
        save_timeout=_of_the_job(SAVE_SECONDS, environment, or_none=True) or 0.0,
        rejoin_timeout=_of_the_job(REJOIN_SECONDS, environment) or math.inf,
        store_ready=_of_the_job(STORE_READY_SECONDS, environment),
        max_restarts=_max_restarts(environment.get(MAX_RESTARTS, "")),
        ignored=tuple(ignored),
        **{key: _parse_seconds(f"--rdzv-conf {key}", config[key]) for key in _WAITS if key in config},
    )


def _parse_endpoint(endpoint: str) -> Address:
    if endpoint.startswith(f"{UNIX}/"):
        return Address(path=endpoint[len(UNIX) :])
    host, separator, text = endpoint.strip().rpartition(":")
    if not separator:
        host, text = text, str(wire.PORT)
    host = host or "127.0.0.1"
    if host == "localhost":
        host = "127.0.0.1"
    if not host.startswith("127."):
        raise SettingsError(
            f"--rdzv-endpoint '{endpoint}' is not the sidecar's loopback address; leave the option out (of accelerate "
            f"launch: --num_machines and --main_process_ip), or use 127.0.0.1:{wire.PORT}"
        )
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise SettingsError(f"--rdzv-endpoint '{endpoint}' has no valid port; use 127.0.0.1:{wire.PORT}")
    return Address(host, int(text))


def _of_the_job(variable: str, environment: Mapping[str, str], *, or_none: bool = False) -> float | None:
    """Return the job's time; ``or_none``: it may be 0."""
    value = environment.get(variable)
    return None if value is None or (or_none and value == "0") else _parse_seconds(variable, value)


def _max_restarts(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _parse_seconds(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise SettingsError(f"{name}={value} is not a positive number of seconds")
    return number


def _parse_number(key: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if not 0 < number <= wire.LONGEST_SECONDS:
        raise SettingsError(f"--rdzv-conf {key}={value} is not a whole number from 1 to {wire.LONGEST_SECONDS}")
    return number


def _worker_lost(numbers: Mapping[str, int]) -> int | None:
    if not numbers.keys() & {"keep_alive_interval", "keep_alive_max_attempt"}:
        return None
    interval = numbers.get("keep_alive_interval", _KEEP_ALIVE_INTERVAL)
    attempts = numbers.get("keep_alive_max_attempt", _KEEP_ALIVE_MAX_ATTEMPT)
    seconds = interval * attempts
    least, most = wire.SHORTEST_WORKER_LOST_SECONDS, wire.LONGEST_SECONDS
    if not least <= seconds <= most:
        raise SettingsError(
            f"--rdzv-conf keep_alive_interval * keep_alive_max_attempt is {interval} * {attempts} = {seconds} s; make "
            f"it at least {least}, and at most {most}"
        )
    return seconds
