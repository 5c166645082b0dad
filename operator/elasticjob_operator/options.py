# SPDX-License-Identifier: Apache-2.0
"""The command line. Each flag has an environment variable ELASTICJOB_<FLAG>."""

import argparse
import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
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

    def flag(name: str, help: str, default: str | None = None, choices: Sequence[str] | None = None) -> None:
        variable = "ELASTICJOB_" + name.upper().replace("-", "_")
        default = environment.get(variable, default)
        if choices and default not in choices:  # argparse does not check a default
            parser.error(f"{variable} is {default!r}: choose from {', '.join(choices)}")
        parser.add_argument(f"--{name}", help=f"{help} [{variable}]", default=default, choices=choices)

    flag("sidecar-image", "image of the sidecar that each worker pod gets (required)")
    flag(
        "sidecar-pull-policy",
        "when the kubelet pulls it",
        "IfNotPresent",
        ("Always", "IfNotPresent", "Never"),
    )
    flag(
        "sidecar-resources",
        "its requests and limits, as a container's resources in JSON",
        json.dumps(SIDECAR_RESOURCES),
    )
    flag(
        "sidecar-security-context",
        "its security context, as a container's securityContext in JSON",
        json.dumps(SIDECAR_SECURITY),
    )
    flag(
        "worker-network-policy",
        "a NetworkPolicy for each job, which lets only its own pods connect to port 27601",
        "false",
        ("true", "false"),
    )
    flag("namespaces", "watch only these namespaces, separated by commas (default: all)", "")
    flag(
        "watch-nodes",
        "watch the cluster's nodes, to replace workers before a node that is drained goes, and for their labels",
        "true",
        ("true", "false"),
    )
    flag("lease-namespace", "where the leader's Lease is (default: the operator's own namespace)")
    flag("lease-name", "name of the leader's Lease", "elasticjob-operator")
    flag(
        "lease-seconds",
        f"how long its Lease lasts without a renewal, {SHORTEST_SECONDS} to {LONGEST_SECONDS}: when the leader is lost "
        "nobody leads for so long",
        str(DURATION_SECONDS),
    )
    flag("health-port", "port of /healthz and /readyz, and of /metrics unless --metrics-secure", "8080")
    flag(
        "metrics-secure",
        "serve /metrics over TLS, at --metrics-port, to whose bearer token may get it",
        "false",
        ("true", "false"),
    )
    flag("metrics-port", "port of /metrics with --metrics-secure", "8443")
    flag("metrics-certificate", "folder of its tls.crt and tls.key (default: a certificate made at the start)", "")
    flag("log-level", "how much to log", "info", ("debug", "info", "warning", "error"))
    flag("log-format", "as text, or as one JSON object a line; the sidecars' too", "text", FORMATS)
    flag("job-metrics", "also serve metrics of each single job", "true", ("true", "false"))
    given = parser.parse_args(arguments)
    if not given.sidecar_image:
        parser.error("--sidecar-image is missing: name the image of the sidecar that each worker pod gets")
    for name, value in (("health-port", given.health_port), ("metrics-port", given.metrics_port)):
        if not value.isdigit() or not 0 < int(value) < 65536:
            parser.error(f"--{name} {value!r} is not a port number")
    seconds = given.lease_seconds
    if not seconds.isdigit() or not SHORTEST_SECONDS <= int(seconds) <= LONGEST_SECONDS:
        parser.error(f"--lease-seconds {seconds!r} is no whole number from {SHORTEST_SECONDS} to {LONGEST_SECONDS}")
    metrics_port = int(given.metrics_port) if given.metrics_secure == "true" else 0
    if metrics_port == int(given.health_port):
        parser.error(f"--metrics-port {given.metrics_port} is the --health-port, whose pages are open to all")
    try:
        resources = _resources(given.sidecar_resources)
    except ValueError as error:
        parser.error(f"--sidecar-resources {given.sidecar_resources!r}: {error}")
    try:
        security = _object(given.sidecar_security_context)
    except ValueError as error:
        parser.error(f"--sidecar-security-context {given.sidecar_security_context!r}: {error}")
    namespace = given.lease_namespace or (OWN_NAMESPACE.read_text().strip() if OWN_NAMESPACE.exists() else "")
    if not namespace:
        parser.error("--lease-namespace is missing, and this process runs in no pod from which to take it")
    return Options(
        sidecar_image=given.sidecar_image,
        sidecar_pull_policy=given.sidecar_pull_policy,
        sidecar_resources=resources,
        sidecar_security_context=security,
        worker_network_policy=given.worker_network_policy == "true",
        namespaces=tuple(name.strip() for name in given.namespaces.split(",") if name.strip()),
        watch_nodes=given.watch_nodes == "true",
        lease_namespace=namespace,
        lease_name=given.lease_name,
        lease_seconds=int(given.lease_seconds),
        health_port=int(given.health_port),
        log_level=given.log_level,
        log_format=given.log_format,
        job_metrics=given.job_metrics == "true",
        metrics_port=metrics_port,
        metrics_certificate=given.metrics_certificate,
        identity=environment.get("POD_NAME") or socket.gethostname(),
    )


def _object(text: str, kind: str = "an object") -> dict[str, Any]:
    """The JSON object in `text`, without its nulls. Raises ValueError with what is wrong."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if isinstance(found, dict):
        return cast("dict[str, Any]", without_nulls(found))
    raise ValueError(f"must be {kind}")


def _resources(text: str) -> dict[str, Any]:
    """The resources in `text`, in JSON. Raises ValueError with what is wrong."""
    kind = 'an object of "requests" and "limits"'
    found = _object(text, kind)
    if not set(found) <= {"requests", "limits"}:
        raise ValueError(f"must be {kind}")
    for kind, amounts in found.items():
        if not (isinstance(amounts, dict) and all(QUANTITY.fullmatch(str(amount)) for amount in amounts.values())):
            raise ValueError(f'{kind} must be quantities such as {{"cpu": "50m", "memory": "96Mi"}}, and is {amounts}')
    return found
