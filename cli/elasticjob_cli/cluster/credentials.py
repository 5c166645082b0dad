# SPDX-License-Identifier: Apache-2.0
"""How a user is authenticated: by a token, a certificate, a password, or a login program.

The program is that of the kubeconfig's `users[].user.exec`, which writes an ExecCredential of
client.authentication.k8s.io. It is run once, and again when its credentials have expired.
"""

import base64
import binascii
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, NamedTuple

from elasticjob_cli.cluster.access import ClusterAccess
from elasticjob_cli.cluster.kubeconfig import Entry, unusable
from elasticjob_cli.errors import CliError

API = "client.authentication.k8s.io"
INFO = "KUBERNETES_EXEC_INFO"


class UserCredentials(NamedTuple):
    """What the user presents. `authorization`: the header's value, or empty. `certificate` and `key`: PEM, or empty.
    `expires`: when to log in again; None for never."""

    authorization: str = ""
    certificate: str = ""
    key: str = ""
    expires: datetime | None = None

    def have_expired(self, now: datetime) -> bool:
        return self.expires is not None and now >= self.expires


def log_in(access: ClusterAccess) -> UserCredentials:
    """The credentials of the user of `access`. Raises CliError."""
    user = access.user
    certificate, key = (_pem(user, f"client-{part}") for part in ("certificate", "key"))
    if access.token:
        return UserCredentials(f"Bearer {access.token}", certificate, key)
    if token := user.text("token") or _token_file(user) or _id_token(user):
        return UserCredentials(f"Bearer {token}", certificate, key)
    if user.body.get("exec"):
        answer = _run(_object(user, "exec"), access)
        return answer if answer.certificate else answer._replace(certificate=certificate, key=key)
    if name := user.text("username"):
        pair = base64.b64encode(f"{name}:{user.text('password')}".encode()).decode()
        return UserCredentials(f"Basic {pair}", certificate, key)
    return UserCredentials("", certificate, key)


def data_of(text: str, where: str) -> str:
    """The text that is encoded in `text`. Raises CliError if it is not the base64 of a text."""
    try:
        return base64.b64decode(text, validate=False).decode()
    except (binascii.Error, ValueError) as error:
        raise unusable(f"{where} is not base64 of PEM") from error


def file_of(path: str, where: str) -> str:
    """The text of the file at `path`. Raises CliError."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise unusable(f"{where} cannot be read: {error}") from error


def _pem(user: Entry, field: str) -> str:
    if data := user.text(f"{field}-data"):
        return data_of(data, f"{user.where}.{field}-data")
    return file_of(user.path(field), f"{user.where}.{field}") if user.text(field) else ""


def _token_file(user: Entry) -> str:
    return file_of(user.path("tokenFile"), f"{user.where}.tokenFile").strip() if user.text("tokenFile") else ""


def _id_token(user: Entry) -> str:
    """The token of a login by OpenID Connect, which kubectl keeps and renews in the kubeconfig.

    Raises CliError for any other provider: kubectl no longer has one.
    """
    if not user.body.get("auth-provider"):
        return ""
    provider = _object(user, "auth-provider")
    token = (provider.body.get("config") or {}).get("id-token")
    if provider.text("name") != "oidc" or not token:
        raise unusable(f"{provider.where} {provider.text('name')!r} has no token here: log in by users[].user.exec")
    return str(token)


def _object(user: Entry, field: str) -> Entry:
    value = user.body[field]
    if not isinstance(value, dict):
        raise unusable(f"{user.where}.{field} is no mapping")
    return Entry(value, user.folder, f"{user.where}.{field}")


def _run(program: Entry, access: ClusterAccess) -> UserCredentials:
    command, version = program.text("command"), program.text("apiVersion")
    if not command or not version.startswith(f"{API}/"):
        raise unusable(f"{program.where} needs a command, and an apiVersion of {API}")
    if "/" in command:
        command = program.path("command")
    done = _started([command, *map(str, program.body.get("args") or ())], program, access)
    if done.returncode:
        raise CliError(f"the login program {command} failed with exit code {done.returncode}; {_hint(program)}")
    try:
        answer = json.loads(done.stdout)
        return _credentials(answer["status"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CliError(f"the login program {command} printed no ExecCredential of {version}") from error


def _started(words: list[str], program: Entry, access: ClusterAccess) -> "subprocess.CompletedProcess[str]":
    asks = sys.stdin is not None and sys.stdin.isatty() and program.text("interactiveMode") != "Never"
    if program.text("interactiveMode") == "Always" and not asks:
        raise CliError(f"the login program {words[0]} needs a terminal (interactiveMode: Always)")
    spec: dict[str, Any] = {"interactive": asks}
    if program.flag("provideClusterInfo"):
        spec["cluster"] = _cluster_info(access)
    info = {"apiVersion": program.text("apiVersion"), "kind": "ExecCredential", "spec": spec}
    own = {str(one["name"]): str(one["value"]) for one in program.body.get("env") or ()}
    environment = os.environ | own | {INFO: json.dumps(info)}
    stdin = None if asks else subprocess.DEVNULL
    try:
        return subprocess.run(words, stdin=stdin, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    except OSError as error:
        raise CliError(f"the login program {words[0]} cannot be run ({error.strerror}); {_hint(program)}") from error


def _hint(program: Entry) -> str:
    return " ".join(program.text("installHint").split()) or f"see {program.where} of the kubeconfig"


def _cluster_info(access: ClusterAccess) -> dict[str, Any]:
    """The cluster's description for the login program, as client-go writes it: the authority as base64, and the
    cluster's extension for such programs."""
    authority = access.authority_data
    if access.authority and not authority:
        authority = base64.b64encode(file_of(access.authority, "certificate-authority").encode()).decode()
    extensions = access.cluster.body.get("extensions") or ()
    found = {
        "server": access.server,
        "tls-server-name": access.server_name,
        "insecure-skip-tls-verify": access.insecure,
        "certificate-authority-data": authority,
        "proxy-url": access.proxy,
        "config": next((one["extension"] for one in extensions if one.get("name") == f"{API}/exec"), None),
    }
    return {key: value for key, value in found.items() if value}


def _credentials(status: dict[str, Any]) -> UserCredentials:
    token, certificate = status.get("token") or "", status.get("clientCertificateData") or ""
    if not (token or certificate) or bool(certificate) != bool(status.get("clientKeyData")):
        raise ValueError("neither a token nor a certificate with its key")
    expires = status.get("expirationTimestamp")
    at = datetime.fromisoformat(expires) if expires else None
    return UserCredentials(
        f"Bearer {token}" if token else "",
        certificate,
        status.get("clientKeyData") or "",
        at.replace(tzinfo=at.tzinfo or UTC) if at else None,
    )
