# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig as kubectl reads it: which files are used, and which entries apply to a context.

If two files contradict each other, the first one takes precedence. Paths in a file are relative to the file's folder.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from elasticjob_cli.errors import CliError

HOME = "~/.kube/config"
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader takes a tenth of the time
KINDS = {"contexts": "context", "clusters": "cluster", "users": "user"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A context, cluster or user. `folder`: the folder for relative paths. `where`: its name in an error."""

    body: Mapping[str, Any]
    folder: str = ""
    where: str = ""

    def text(self, key: str) -> str:
        """The value of the field; empty if it is absent. Raises CliError if it is not a text."""
        value = self.body.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise unusable(f"{self.where}.{key} is {_kind(value)} and not a text")
        return value

    def flag(self, key: str) -> bool:
        """The value of the field; False if it is absent. Raises CliError if it is neither true nor false."""
        value = self.body.get(key) or False
        if not isinstance(value, bool):
            raise unusable(f"{self.where}.{key} is {_kind(value)} and neither true nor false")
        return value

    def path(self, key: str) -> str:
        """The path in the field; empty if it is absent."""
        return os.path.join(self.folder, self.text(key)) if self.text(key) else ""


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The entries of all files, by name. `current`: the context if none is named; empty if no file names one."""

    current: str = ""
    contexts: dict[str, Entry] = field(default_factory=dict)
    clusters: dict[str, Entry] = field(default_factory=dict)
    users: dict[str, Entry] = field(default_factory=dict)

    def context(self, name: str) -> Entry:
        return _named(self.contexts, name, "context")

    def cluster(self, name: str) -> Entry:
        return _named(self.clusters, name, "cluster")

    def user(self, name: str) -> Entry:
        """The user of that name; empty if there is none, as for kubectl."""
        return self.users.get(name, Entry({}, where=f"users[{name}].user"))


def unusable(why: str) -> CliError:
    return CliError(f"the kubeconfig cannot be used: {why}; see --kubeconfig and --context")


def read(named: str | None) -> Kubeconfig:
    """Reads the file `named`, which has to exist; otherwise the files of KUBECONFIG, or the one at home. Raises
    CliError."""
    if named and not os.path.exists(os.path.expanduser(named)):
        raise unusable(f"there is no file {named}")
    paths = [named] if named else (os.environ.get("KUBECONFIG") or HOME).split(os.pathsep)
    current, found = "", Kubeconfig()
    for path in map(os.path.expanduser, paths):
        body = _load(path) if os.path.exists(path) else None
        if body is None:
            continue
        if not isinstance(body, dict):
            raise unusable(f"{path} is {_kind(body)} and not a kubeconfig")
        current = current or str(body.get("current-context") or "")
        for kind in KINDS:
            for name, entry in _entries(path, body, kind):
                getattr(found, kind).setdefault(name, entry)
    return Kubeconfig(current, found.contexts, found.clusters, found.users)


def _entries(path: str, body: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Entry]]:
    listed = body.get(kind) or []
    if not isinstance(listed, list):
        raise unusable(f"{kind} of {path} is {_kind(listed)} and not a list")
    for number, one in enumerate(listed):
        where = f"{kind}[{number}] of {path}"
        if not isinstance(one, dict) or not one.get("name"):
            raise unusable(f"{where} has no name")
        inner = one.get(KINDS[kind]) or {}
        if not isinstance(inner, dict):
            raise unusable(f"{where} is {_kind(inner)} and not a {KINDS[kind]}")
        name = str(one["name"])
        yield name, Entry(inner, os.path.dirname(os.path.abspath(path)), f"{kind}[{name}].{KINDS[kind]}")


def _named(entries: Mapping[str, Entry], name: str, kind: str) -> Entry:
    if name not in entries:
        raise unusable(f"it has no {kind} {name!r}")
    return entries[name]


def _kind(value: object) -> str:
    names = {list: "a list", dict: "a mapping", str: "a text", bool: "true or false"}
    return names.get(type(value), "a number")


def _load(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.load(file, Loader=LOADER)  # noqa: S506 - a safe one, in C where it is built
    except (yaml.YAMLError, OSError, ValueError) as error:
        raise unusable(" ".join(str(error).split())) from error
