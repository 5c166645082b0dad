# SPDX-License-Identifier: Apache-2.0
"""Names of a ConfigMap's keys for a store's keys: any text is allowed, and letters and digits stay readable.

A character that a ConfigMap does not allow becomes ``_`` and each byte in hexadecimal. Names that would be too long end
in a digest.
"""

from __future__ import annotations

import hashlib
import re

_MAX_NAME = 253
_OTHER = re.compile(rb"[^A-Za-z0-9.-]")


_DIGEST = "_sha256_"  # no escaped byte begins with an s
_READABLE = _MAX_NAME - len(_DIGEST) - 64


def name_of(key: str) -> str:
    """Return the name for a key; different keys have different names."""
    name = _escape(key)
    if len(name) <= _MAX_NAME:
        return name or "_"
    return name[:_READABLE] + _DIGEST + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def may_begin_with(name: str, prefix: str) -> bool:
    """Say whether a name may belong to a key that begins with ``prefix``. Exact unless the prefix is very long."""
    return name.startswith(_escape(prefix)[:_READABLE])


def _escape(key: str) -> str:
    name = _OTHER.sub(lambda match: b"_%02X" % match[0][0], key.encode("utf-8", "surrogatepass")).decode()
    return "_2E" + name[1:] if name.startswith(".") else name  # "." and ".." are not allowed
