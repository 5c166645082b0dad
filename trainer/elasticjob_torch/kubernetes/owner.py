# SPDX-License-Identifier: Apache-2.0
"""The object to which a run's ConfigMaps belong: Kubernetes deletes them with it.

Pure: no environment, no files. The pods' service account needs no permission for that object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = "<apiVersion>/<kind>/<name>/<uid>, such as batch/v1/Job/train/<uid>"
_VERSION = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class OwnerError(ValueError):
    """The text does not name an object; the message says what is wrong with it."""


@dataclass(frozen=True)
class Owner:
    """An object of the ConfigMaps' namespace."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def reference(self) -> dict[str, str]:
        """Return the item of ``metadata.ownerReferences``."""
        return {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}


def parse_owner(text: str) -> Owner:
    """Read ``<apiVersion>/<kind>/<name>/<uid>``.

    A wrong uid would have Kubernetes delete the ConfigMaps during the run, so the form is checked strictly.

    Raises:
        OwnerError: the text has another form, or a variable of the pod's manifest that was not replaced.
    """
    if "$(" in text:
        raise OwnerError(
            "has a variable that was not replaced; list that variable in the container's env before this one"
        )
    parts = text.rsplit("/", 3)
    if len(parts) != 4:
        raise OwnerError(f"is not {_FORM}")
    for part, what, pattern in zip(
        parts, ("apiVersion", "kind", "name", "uid"), (_VERSION, _KIND, _NAME, _UID), strict=True
    ):
        if not pattern.fullmatch(part):
            raise OwnerError(f"has {part!r} as its {what}; the form is {_FORM}")
    return Owner(*parts)
