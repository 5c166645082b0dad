# SPDX-License-Identifier: Apache-2.0
"""Keys and tokens of a control plane that lives for one test run, made with the standard library alone."""

from __future__ import annotations

import base64
import json
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# RFC 5915: version 1, a private key of 32 bytes, the curve P-256; the optional public key is left out
_BEFORE_KEY = bytes.fromhex("30310201010420")
_AFTER_KEY = bytes.fromhex("a00a06082a8648ce3d030107")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_text(text)


def signing_key() -> str:
    """Return a new private key, in PEM, that can sign service account tokens."""
    scalar = secrets.randbits(255) | 1  # below the order of the curve, and not zero
    der = _BEFORE_KEY + scalar.to_bytes(32, "big") + _AFTER_KEY
    body = base64.encodebytes(der).decode().replace("\n", "")
    lines = [body[i : i + 64] for i in range(0, len(body), 64)]
    return "\n".join(["-----BEGIN EC PRIVATE KEY-----", *lines, "-----END EC PRIVATE KEY-----", ""])


def admin_token() -> str:
    """Return a new secret token."""
    return secrets.token_urlsafe(32)


def token_file(token: str) -> str:
    """Return the API server's table of tokens, with an administrator as its only line."""
    return f'{token},admin,admin,"system:masters"\n'


def kubeconfig(server: str, authority: str, token: str) -> str:
    """Return a kubeconfig for the server (its URL), whose certificate ``authority`` (PEM) vouches for."""
    encoded = base64.b64encode(authority.encode()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": encoded}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }
    return json.dumps(config, indent=2)  # JSON is YAML
