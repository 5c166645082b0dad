# SPDX-License-Identifier: Apache-2.0
"""The command line. Each flag has an environment variable ELASTICJOB_<FLAG>."""

import argparse
import json
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from elasticjob.logs import FORMATS, Format
from elasticjob.objects import without_nulls
from elasticjob_operator.cluster.leader import DURATION_SECONDS, LONGEST_SECONDS, SHORTEST_SECONDS
from elasticjob_operator.objects.pods import SIDECAR_RESOURCES, SIDECAR_SECURITY

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

QUANTITY = re.compile(r"[0-9]+(\.[0-9]*)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    sidecar_image: str
    sidecar_pull_policy: str
    sidecar_resources: dict[str, Any]
    sidecar_security_context: dict[str, Any]
    worker_network_policy: bool
    namespaces: tuple[str, ...]
    watch_nodes: bool
    lease_namespace: str
    lease_name: str
    lease_seconds: int
    health_port: int
    log_level: str
    log_format: Format
    job_metrics: bool
    metrics_port: int
    """The port of the metrics over TLS; 0 for plain HTTP at the health port."""
    metrics_certificate: str
    identity: str


def parse(arguments: Sequence[str] | None, environment: Mapping[str, str] = os.environ) -> Options:
    """Reads the command line. If it is wrong, exits with a sentence that names the flag."""
    parser = argparse.ArgumentParser(prog="elasticjob-operator", description="Runs ElasticJobs.")
    switches: list[str] = []

    def flag(
        name: str,
        help: str,
        default: str | None = None,
        choices: Sequence[str] | None = None,
        read: Callable[[str], Any] = str,
    ) -> None:
        variable = "ELASTICJOB_" + name.upper().replace("-", "_")
        default = environment.get(variable, default)
        if choices and default not in choices:  # argparse does not check a default
            parser.error(f"{variable} is {default!r}: choose from {', '.join(choices)}")
        parser.add_argument(f"--{name}", help=f"{help} [{variable}]", default=default, choices=choices, type=read)

    def switch(name: str, help: str, default: str) -> None:
        switches.append(name.replace("-", "_"))
        flag(name, help, default, ("true", "false"))

    resources, security = json.dumps(SIDECAR_RESOURCES), json.dumps(SIDECAR_SECURITY)
    port, lease_seconds = _whole(1, 65535), _whole(SHORTEST_SECONDS, LONGEST_SECONDS)
    flag("sidecar-image", "image of the sidecar that each worker pod gets (required)")
    flag("sidecar-pull-policy", "when the kubelet pulls it", "IfNotPresent", ("Always", "IfNotPresent", "Never"))
    flag("sidecar-resources", "its requests and limits, as a container's, in JSON", resources, read=_resources)
    flag("sidecar-security-context", "its security context, as a container's, in JSON", security, read=_object)
    pods_only = "a NetworkPolicy for each job, which lets only its own pods connect to port 27601"
    switch("worker-network-policy", pods_only, "false")
    flag("namespaces", "watch only these namespaces, separated by commas (default: all)", "", read=_names)
    switch(
        "watch-nodes",
        "watch the cluster's nodes, to replace workers before a node that is drained goes, and for their labels",
        "true",
    )
    flag("lease-namespace", "where the leader's Lease is (default: the operator's own namespace)")
    flag("lease-name", "name of the leader's Lease", "elasticjob-operator")
    flag(
        "lease-seconds",
        f"how long its Lease lasts without a renewal, {SHORTEST_SECONDS} to {LONGEST_SECONDS}: when the leader is lost "
        "nobody leads for so long",
        str(DURATION_SECONDS),
        read=lease_seconds,
    )
    flag("health-port", "port of /healthz and /readyz, and of /metrics unless --metrics-secure", "8080", read=port)
    switch("metrics-secure", "serve /metrics over TLS, at --metrics-port, to whose bearer token may get it", "false")
    flag("metrics-port", "port of /metrics with --metrics-secure", "8443", read=port)
    flag("metrics-certificate", "folder of its tls.crt and tls.key (default: a certificate made at the start)", "")
    flag("log-level", "how much to log", "info", ("debug", "info", "warning", "error"))
    flag("log-format", "as text, or as one JSON object a line; the sidecars' too", "text", FORMATS)
    switch("job-metrics", "also serve metrics of each single job", "true")
    given = vars(parser.parse_args(arguments))
    given |= {name: given[name] == "true" for name in switches}
    if not given["sidecar_image"]:
        parser.error("--sidecar-image is missing: name the image of the sidecar that each worker pod gets")
    if not given.pop("metrics_secure"):
        given["metrics_port"] = 0
    if given["metrics_port"] == given["health_port"]:
        parser.error(f"--metrics-port {given['metrics_port']} is the --health-port, whose pages are open to all")
    if not given["lease_namespace"] and OWN_NAMESPACE.exists():
        given["lease_namespace"] = OWN_NAMESPACE.read_text().strip()
    if not given["lease_namespace"]:
        parser.error("--lease-namespace is missing, and this process runs in no pod from which to take it")
    return Options(**given, identity=environment.get("POD_NAME") or socket.gethostname())


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most}")
        return int(text)

    return read


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _object(text: str, kind: str = "an object") -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} must be {kind}")
    return cast("dict[str, Any]", without_nulls(found))


def _resources(text: str) -> dict[str, Any]:
    form = 'an object of "requests" and "limits"'
    found = _object(text, form)
    if not found.keys() <= {"requests", "limits"}:
        raise argparse.ArgumentTypeError(f"{text!r} must be {form}")
    for kind, amounts in found.items():
        if not (isinstance(amounts, dict) and all(QUANTITY.fullmatch(str(amount)) for amount in amounts.values())):
            raise argparse.ArgumentTypeError(
                f'{kind} must be quantities such as {{"cpu": "50m", "memory": "96Mi"}}, and is {amounts}'
            )
    return found
