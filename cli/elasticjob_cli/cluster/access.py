# SPDX-License-Identifier: Apache-2.0
"""How to reach one cluster, and as which user, by the kubeconfig and kubectl's flags. A flag takes precedence.

This module reads files and starts no process. `credentials` runs login programs.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from elasticjob_cli.cluster import kubeconfig
from elasticjob_cli.cluster.kubeconfig import Entry, Kubeconfig, unusable
from elasticjob_cli.errors import CliError, Exit

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_SECONDS = 30.0
UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


class KubectlFlags(NamedTuple):
    """The cluster and the user as kubectl's flags name them. None and empty values are left to the kubeconfig.
    `request_seconds`: the limit for one request, None for no limit."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    server: str | None = None
    token: str | None = None
    certificate_authority: str | None = None
    insecure: bool = False
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    as_uid: str | None = None
    request_seconds: float | None = REQUEST_SECONDS


class ClusterAccess(NamedTuple):
    """How to reach a cluster. `authority`: a file with certificates. If it is empty, `authority_data` is used, which is
    base64; if that is empty too, the certificates that the system trusts. `impersonated`: headers; a name may occur
    several times."""

    server: str
    namespace: str
    cluster: Entry
    user: Entry
    token: str = ""
    authority: str = ""
    authority_data: str = ""
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    impersonated: tuple[tuple[str, str], ...] = ()
    request_seconds: float | None = REQUEST_SECONDS


def access_of(flags: KubectlFlags) -> ClusterAccess:
    """The access that `flags` describes. Raises CliError if no cluster is named, or the kubeconfig is unusable."""
    known = kubeconfig.read(flags.kubeconfig)
    name = flags.context or known.current
    if not (name or flags.kubeconfig or flags.server):
        return _within(flags)
    context = known.context(name) if name else Entry({})
    return _reached(flags, known, context)


def seconds_of(text: str) -> float | None:
    """The seconds of a duration as kubectl writes it: `30`, `1m30s`. None for 0, which is no limit. Raises
    ValueError."""
    if text.isdecimal():
        return float(text) or None
    if not text or DURATION.sub("", text):
        raise ValueError(text)
    return sum(float(number) * UNITS[unit] for number, unit in DURATION.findall(text)) or None


def _reached(flags: KubectlFlags, known: Kubeconfig, context: Entry) -> ClusterAccess:
    no_cluster = flags.server and not context.text("cluster")
    cluster = Entry({}) if no_cluster else known.cluster(context.text("cluster"))
    user = known.user(context.text("user"))
    server = (flags.server or cluster.text("server") or "http://localhost:8080").rstrip("/")
    server = server if "://" in server else f"http://{server}"
    if not server.startswith(("http://", "https://")):
        raise unusable(f"{cluster.where}.server is {server!r}, and neither an http nor an https address")
    return ClusterAccess(
        server=server,
        namespace=flags.namespace or context.text("namespace") or "default",
        cluster=cluster,
        user=user,
        token=flags.token or "",
        authority=flags.certificate_authority or cluster.path("certificate-authority"),
        authority_data="" if flags.certificate_authority else cluster.text("certificate-authority-data"),
        insecure=flags.insecure or cluster.flag("insecure-skip-tls-verify"),
        server_name=cluster.text("tls-server-name"),
        proxy=cluster.text("proxy-url"),
        impersonated=_impersonated(flags, user),
        request_seconds=flags.request_seconds,
    )


def _within(flags: KubectlFlags) -> ClusterAccess:
    """The access from inside a pod, by its service account."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not (host and port and (SERVICE_ACCOUNT / "token").exists()):
        sentence = "there is no cluster to speak with, as no kubeconfig names a current context: name one with "
        raise CliError(f"{sentence}--kubeconfig, --context, KUBECONFIG or --server")
    user = Entry({"tokenFile": str(SERVICE_ACCOUNT / "token")})
    return ClusterAccess(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=flags.namespace or _own_namespace(),
        cluster=Entry({}),
        user=user,
        token=flags.token or "",
        authority=flags.certificate_authority or str(SERVICE_ACCOUNT / "ca.crt"),
        insecure=flags.insecure,
        impersonated=_impersonated(flags, user),
        request_seconds=flags.request_seconds,
    )


def _own_namespace() -> str:
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _impersonated(flags: KubectlFlags, user: Entry) -> tuple[tuple[str, str], ...]:
    """The headers that impersonate a user. Raises CliError for groups or a uid without a user, which the API server
    refuses."""
    name, uid = flags.as_user or user.text("as"), flags.as_uid or user.text("as-uid")
    groups = flags.as_groups or tuple(map(str, user.body.get("as-groups") or ()))
    extra: Mapping[str, Any] = user.body.get("as-user-extra") or {}
    if not name:
        if groups or uid:
            raise CliError("--as-group and --as-uid go with --as, which names the user", Exit.WRONG_COMMAND_LINE)
        return ()
    found = [("Impersonate-User", name), *(("Impersonate-Group", group) for group in groups)]
    found += [("Impersonate-Uid", uid)] if uid else []
    found += [(f"Impersonate-Extra-{key}", str(value)) for key, values in extra.items() for value in values]
    return tuple(found)
