# SPDX-License-Identifier: Apache-2.0
"""The settings on torchrun's command line: the endpoint, and the keys of ``--rdzv-conf``.

Pure: no environment, no files, no torch. Every error names the option at fault.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elasticjob_torch.agent.settings import SettingsError
from elasticjob_torch.kubernetes.heartbeats import Pace
from elasticjob_torch.kubernetes.owner import Owner, OwnerError, parse_owner

if TYPE_CHECKING:
    from collections.abc import Mapping

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME = 253 - len("-store")

_DEFAULT_SECONDS = {
    "join_timeout": 600,
    "last_call_timeout": 30,
    "close_timeout": 30,
    "heartbeat_timeout": 5,
    "keep_alive_interval": 5,
    "keep_alive_max_attempt": 3,
}
_BACKOFF = "cas_backoff_max_seconds"
_OWNER = "owner"
_KNOWN = (*_DEFAULT_SECONDS, _BACKOFF, _OWNER)
_ALIASES = {"heartbeat": "heartbeat_timeout"}  # torch documents the one and reads the other
_SENT_ALWAYS = "timeout"  # by torchrun itself; no dynamic rendezvous uses it
_WITHOUT_EFFECT = (_SENT_ALWAYS, "read_timeout", "is_host", "store_type")  # c10d's, which scripts contain


@dataclass(frozen=True)
class BackendSettings:
    """Where the state is kept, and torch's own settings of its dynamic rendezvous."""

    namespace: str
    """Empty for the pod's own."""
    name: str
    config: Mapping[str, int]
    longest_pause: float = 0.0
    """``cas_backoff_max_seconds``: the longest pause after another node's write came first. 0: no fixed bound."""
    owner: Owner | None = None
    """The object with which the run's ConfigMaps are deleted; None: nothing deletes them."""
    ignored: tuple[str, ...] = ()
    """Sentences about keys that were accepted but have no effect."""

    @property
    def pace(self) -> Pace:
        """How often nodes write heartbeats, and how many may fail."""
        return Pace(self.config["keep_alive_interval"], self.config["keep_alive_max_attempt"])


def parse_settings(endpoint: str, config: Mapping[str, Any]) -> BackendSettings:
    """Check torchrun's options, and return them as `BackendSettings`.

    Raises:
        SettingsError: the endpoint is not ``<namespace>/<name>`` or ``<name>``, or a key of --rdzv-conf is unknown or
            has an invalid value.
    """
    namespace, name = _parse_endpoint(endpoint)
    numbers, longest_pause, owner = dict(_DEFAULT_SECONDS), 0.0, None
    for key, value in config.items():
        known = _ALIASES.get(key, key)
        if known in numbers:
            numbers[known] = _parse_number(key, value)
        elif key == _BACKOFF:
            longest_pause = _parse_pause(value)
        elif key == _OWNER:
            owner = _parse_owner(value)
        elif key not in _WITHOUT_EFFECT:
            raise SettingsError(f"--rdzv-conf has the unknown key '{key}'; known are: {', '.join(_KNOWN)}")
    unused = (key for key in config if key in _WITHOUT_EFFECT and key != _SENT_ALWAYS)
    ignored = tuple(f"--rdzv-conf {key} has no effect with this backend" for key in unused)
    return BackendSettings(namespace, name, numbers, longest_pause, owner, ignored)


def _parse_endpoint(endpoint: str) -> tuple[str, str]:
    wanted = "it is <namespace>/<name> of a ConfigMap, or only <name> for one in the pod's own namespace"
    if not endpoint:
        raise SettingsError(f"--rdzv-endpoint is empty; {wanted}")
    namespace, separator, name = endpoint.rpartition("/")
    if (separator and not _LABEL.fullmatch(namespace)) or not _NAME.fullmatch(name):
        raise SettingsError(f"--rdzv-endpoint '{endpoint}' does not name an object; {wanted}")
    if len(name) > _MAX_NAME:
        raise SettingsError(f"--rdzv-endpoint has a name of {len(name)} characters; {_MAX_NAME} are possible")
    return namespace, name


def _parse_number(key: str, value: Any) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number < 1:
        raise SettingsError(f"--rdzv-conf {key}={value} is not a positive whole number")
    return number


def _parse_owner(value: Any) -> Owner:
    try:
        return parse_owner(str(value))
    except OwnerError as error:
        raise SettingsError(f"--rdzv-conf {_OWNER}={value} {error}") from None


def _parse_pause(value: Any) -> float:
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise SettingsError(f"--rdzv-conf {_BACKOFF}={value} is not a number of seconds from 0 on")
    return seconds
