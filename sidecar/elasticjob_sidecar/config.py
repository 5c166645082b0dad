# SPDX-License-Identifier: Apache-2.0
"""The sidecar's configuration: one model, read once from the environment that the operator sets.

Every error is one sentence that names the variable, for people who start the image by hand.
"""

from collections.abc import Mapping
from ipaddress import IPv6Address
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, IPvAnyAddress, ValidationError

from elasticjob.api import HEALTH_PORT, STORE_PORT, TUNNEL_PORT
from elasticjob.logs import Format

PREFIX = "ELASTICJOB_"
HINT = "the sidecar is meant to be started by the elasticjob operator, in a worker pod"

Name = Annotated[str, Field(min_length=1, max_length=253)]
Seconds = Annotated[float, Field(gt=0, le=86400)]
Port = Annotated[int, Field(gt=0, lt=65536)]


class ConfigError(Exception):
    """The environment is not one that the operator sets."""


class Config(BaseModel):
    """Each field is the variable of the same name with the prefix `ELASTICJOB_`."""

    model_config = ConfigDict(frozen=True)

    job: Name
    job_uid: Name
    index: Annotated[int, Field(ge=0)]
    batch: Annotated[str, Field(pattern="^[0-9a-f]{8}$")]
    namespace: Name
    pod_name: Name
    pod_uid: Name
    pod_ip: IPvAnyAddress
    node_name: str = ""
    state_dir: Path = Path("/var/lib/elasticjob")
    plugin_dir: Path | None = None
    store_port: Port = STORE_PORT
    tunnel_port: Port = TUNNEL_PORT
    health_port: Port = HEALTH_PORT
    trainer_socket: Path | None = None  # set where loopback is the node's, and thus unsuitable for the trainer's API
    join_timeout_seconds: Seconds = 600.0
    store_ready_seconds: Seconds = 20.0
    processes: Annotated[int, Field(ge=0)] = 0  # training processes of each worker; 0 if unknown
    save_seconds: Annotated[float, Field(ge=0, le=86400)] = 15.0
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Format = "text"

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read `env`. Raises ConfigError."""
        given = {name: env[variable] for name in cls.model_fields if (variable := PREFIX + name.upper()) in env}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ConfigError(_sentence(error)) from None

    @property
    def address(self) -> str:
        """The address at which other sidecars reach this one's tunnel."""
        ip = f"[{self.pod_ip}]" if isinstance(self.pod_ip, IPv6Address) else str(self.pod_ip)
        return f"{ip}:{self.tunnel_port}"


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    variable = PREFIX + str(first["loc"][0]).upper()
    if first["type"] == "missing":
        return f"{variable} is not set: {HINT}."
    return f"{variable} is {first['input']!r}, which is not valid ({first['msg']}): {HINT}."
