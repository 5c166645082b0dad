# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig as kubectl reads it: which files it is, and which of their contexts counts.

The Python client takes the current context of the last file in place of the first, and looks at KUBECONFIG only when it
is imported.
"""

import os
from typing import Any, NamedTuple

import yaml

HOME = "~/.kube/config"


class Kubeconfig(NamedTuple):
    """`files`: those with something in them, as the Python client takes them. `current`: the context that counts where
    none is asked for; empty where no file names one. `namespaces`: by context; empty where it names none."""

    files: str
    current: str
    namespaces: dict[str, str]


def read(named: str | None) -> Kubeconfig:
    """The file that is `named`, else those of KUBECONFIG, else the one at home. Of two that say the same thing
    differently the first counts."""
    paths = (os.path.expanduser(path) for path in (named or os.environ.get("KUBECONFIG") or HOME).split(os.pathsep))
    bodies = {path: body for path in paths if os.path.exists(path) and (body := _load(path))}
    current = (body.get("current-context") for body in bodies.values())
    namespaces: dict[str, str] = {}
    for body in bodies.values():
        for one in body.get("contexts") or ():
            namespaces.setdefault(str(one["name"]), str((one.get("context") or {}).get("namespace") or ""))
    return Kubeconfig(os.pathsep.join(bodies), next((str(name) for name in current if name), ""), namespaces)


def _load(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file)
