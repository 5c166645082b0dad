# SPDX-License-Identifier: Apache-2.0
"""An ElasticJob from a command line. Fields that the API server fills in are left out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticjob.api import API_VERSION, JOB_NAME_LENGTH
from elasticjob.objects import Object
from elasticjob_cli.errors import CliError, Exit

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The job that the command line describes. None and empty values are left to the API's defaults."""

    name: str
    image: str
    command: Sequence[str]
    replicas: int = 1
    min_replicas: int | None = None
    max_replicas: int | None = None
    nproc_per_node: str | None = None
    max_restarts: int | None = None
    gpus: int = 0
    cpu: str = ""
    memory: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    pull_policy: str = ""
    pull_secrets: Sequence[str] = ()
    claims: Sequence[tuple[str, str]] = ()  # each with its mount path


def manifest(wish: Wish) -> Object:
    """The job's manifest. Raises CliError that names the wrong argument."""
    if not NAME.fullmatch(wish.name) or len(wish.name) > JOB_NAME_LENGTH:
        raise CliError(
            f"NAME {wish.name!r} cannot be a job's: it has at most {JOB_NAME_LENGTH} lower-case letters, "
            "digits and -, and begins and ends with a letter or digit",
            Exit.WRONG_COMMAND_LINE,
        )
    spec: dict[str, Any] = {"replicas": wish.replicas}
    given = {
        "minReplicas": wish.min_replicas,
        "maxReplicas": wish.max_replicas,
        "nprocPerNode": _number(wish.nproc_per_node),
        "maxRestarts": wish.max_restarts,
    }
    spec |= {key: value for key, value in given.items() if value is not None}
    spec["template"] = {"spec": _pod(wish)}
    return {"apiVersion": API_VERSION, "kind": "ElasticJob", "metadata": {"name": wish.name}, "spec": spec}


def command(words: Sequence[str]) -> list[str]:
    """The trainer's command. `train.py --epochs 3` and `-m package.train` run under torchrun; another program runs as
    it is.

    Raises CliError if `words` is empty.
    """
    if not words:
        raise CliError(
            "there is nothing to run: put the script and its arguments after --, as in `-- train.py --lr 0.1`",
            Exit.WRONG_COMMAND_LINE,
        )
    first = words[0]
    return ["torchrun", *words] if first.endswith(".py") or first == "-m" else list(words)


def _pod(wish: Wish) -> Object:
    container: dict[str, Any] = {"name": "trainer", "image": wish.image, "command": command(wish.command)}
    if wish.pull_policy:
        container["imagePullPolicy"] = wish.pull_policy
    if wish.env:
        container["env"] = [{"name": name, "value": value} for name, value in wish.env.items()]
    if resources := _resources(wish):
        container["resources"] = resources
    pod: dict[str, Any] = {"containers": [container]}
    if wish.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in wish.pull_secrets]
    if wish.claims:
        container["volumeMounts"], pod["volumes"] = _volumes(wish.claims)
    return pod


def _volumes(claims: Sequence[tuple[str, str]]) -> tuple[list[Object], list[Object]]:
    """The mounts and the volumes, one volume for each claim. Volumes are numbered, because a claim's name may be longer
    than a volume's, and may contain dots."""
    names = {claim: f"claim-{number}" for number, claim in enumerate(dict.fromkeys(claim for claim, _ in claims))}
    mounts: list[Object] = [{"name": names[claim], "mountPath": path} for claim, path in claims]
    return mounts, [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in names.items()]


def _resources(wish: Wish) -> Object:
    requests = {key: value for key, value in (("cpu", wish.cpu), ("memory", wish.memory)) if value}
    limits: dict[str, Any] = {"memory": wish.memory} if wish.memory else {}
    if wish.gpus:
        limits[GPU] = wish.gpus
    found = {"requests": requests, "limits": limits}
    return {key: value for key, value in found.items() if value}


def _number(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdecimal() else text
