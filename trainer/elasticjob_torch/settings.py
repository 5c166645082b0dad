"""What a handler is told by torchrun: endpoint, run id and ``--rdzv-conf``.

Pure: no environment, no sockets, no torch. Every error names the option at fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORT = 29401

# Keys that a command line written for torch's own backends may carry. They have no meaning here,
# because the operator decides from the job's spec; refusing them would break such a command line.
_WITHOUT_EFFECT = {
    "timeout": "",  # torchrun itself always sends this one
    "last_call_timeout": "spec.rendezvous.lastCallSeconds",
    "heartbeat": "spec.rendezvous.workerLostSeconds",
    "heartbeat_timeout": "spec.rendezvous.workerLostSeconds",
    "keep_alive_interval": "spec.rendezvous.workerLostSeconds",
    "keep_alive_max_attempt": "spec.rendezvous.workerLostSeconds",
    "read_timeout": "",
    "is_host": "",
    "store_type": "",
}
_KNOWN = ("join_timeout", "close_timeout", "sidecar_timeout")


class SettingsError(ValueError):
    """An option of torchrun that this backend cannot work with; the message names it."""


@dataclass(frozen=True)
class Settings:
    """How to reach the sidecar, and for how long to wait. All times are in seconds."""

    host: str
    port: int
    run_id: str
    join_timeout: float | None = None
    """How long one rendezvous may take. None (the default): as long as the job's own
    ``spec.rendezvous.joinTimeoutSeconds`` allows."""
    close_timeout: float = 30.0
    """How long to wait until a leave, finish or close is recorded."""
    sidecar_timeout: float = 30.0
    """How long the sidecar may be unreachable (it restarts) before that is an error."""
    ignored: tuple[str, ...] = ()
    """Sentences about keys that were accepted but have no effect."""


def parse_settings(endpoint: str, run_id: str, config: Mapping[str, Any]) -> Settings:
    """Check torchrun's options and return them as `Settings`.

    Raises:
        SettingsError: the endpoint is not on loopback, or a key of --rdzv-conf is unknown or not a
            positive number of seconds.
    """
    host, port = _parse_endpoint(endpoint)
    seconds: dict[str, float] = {}
    ignored = []
    for key, value in config.items():
        if key in _KNOWN:
            seconds[key] = _parse_seconds(key, value)
        elif key not in _WITHOUT_EFFECT:
            known = ", ".join((*_KNOWN, *_WITHOUT_EFFECT))
            raise SettingsError(f"--rdzv-conf has the unknown key '{key}'; known are: {known}")
        elif key != "timeout":
            instead = _WITHOUT_EFFECT[key]
            hint = f"; set {instead} of the ElasticJob instead" if instead else ""
            ignored.append(f"--rdzv-conf {key} has no effect with this backend{hint}")
    return Settings(host=host, port=port, run_id=run_id, ignored=tuple(ignored), **seconds)


def _parse_endpoint(endpoint: str) -> tuple[str, int]:
    host, separator, text = endpoint.strip().rpartition(":")
    if not separator:
        host, text = text, str(DEFAULT_PORT)
    host = host or "127.0.0.1"
    if host == "localhost":
        host = "127.0.0.1"
    if not host.startswith("127."):
        raise SettingsError(
            f"--rdzv-endpoint '{endpoint}' is not the sidecar's loopback address; "
            f"leave the option out, or use 127.0.0.1:{DEFAULT_PORT}"
        )
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise SettingsError(f"--rdzv-endpoint '{endpoint}' has no valid port; use 127.0.0.1:{DEFAULT_PORT}")
    return host, int(text)


def _parse_seconds(key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise SettingsError(f"--rdzv-conf {key}={value} is not a positive number of seconds")
    return number
