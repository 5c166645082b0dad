# SPDX-License-Identifier: Apache-2.0
"""What the API server has stored: objects, one count of versions for all of them, and the log that watches read."""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

Object = dict[str, Any]
Name = tuple[str, str]  # namespace and name
Matcher = Callable[[Object], bool]


class Stored(NamedTuple):
    """An object, its JSON, and that of each of its parts. What two versions have in common both hold, so nothing in
    them is ever changed in place."""

    body: Object
    raw: bytes
    parts: dict[str, bytes]

    @classmethod
    def of(cls, body: Object, before: "Stored | None" = None) -> "Stored":
        """Writes only the parts that `before` does not have."""
        old, known = (before.body, before.parts) if before else ({}, {})
        parts = {
            key: known[key] if value is old.get(key) and key in known else json.dumps(value).encode()
            for key, value in body.items()
        }
        return cls(body, b"{%s}" % b", ".join(b'"%s": %s' % (key.encode(), raw) for key, raw in parts.items()), parts)


class Change(NamedTuple):
    """One write, by the client `by`, whose request was sent at `sent_at`. No `new`: the object is gone."""

    version: int
    plural: str
    type: str  # ADDED, MODIFIED or DELETED
    old: Object | None
    new: Object | None
    raw: bytes
    by: str
    sent_at: float

    @property
    def body(self) -> Object:
        found = self.new or self.old
        assert found is not None
        return found


class Store:
    def __init__(self) -> None:
        self.version = 100
        self.compacted = 0  # of what was before nothing is known any more
        self.log: list[Change] = []
        self.observers: list[Callable[[Change], None]] = []
        self.uids: set[str] = set()
        self._objects: dict[str, dict[Name, Stored]] = {}

    def find(self, plural: str, name: Name) -> Stored | None:
        return self._objects.get(plural, {}).get(name)

    def all(self, plural: str, namespace: str | None = None) -> Iterator[Stored]:
        for (space, _), stored in list(self._objects.get(plural, {}).items()):
            if namespace is None or space == namespace:
                yield stored

    def everything(self) -> Iterator[tuple[str, Stored]]:
        for plural in list(self._objects):
            yield from ((plural, stored) for stored in self.all(plural))

    def put(self, plural: str, body: Object, by: str, sent_at: float) -> Stored:
        """Stores `body`, which belongs to the store from now on, in a new version."""
        meta = body["metadata"]
        name = (meta["namespace"], meta["name"])
        before = self.find(plural, name)
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        stored = Stored.of(body, before)
        self._objects.setdefault(plural, {})[name] = stored
        self.uids.add(meta["uid"])
        old = before.body if before else None
        self._note(Change(self.version, plural, "MODIFIED" if old else "ADDED", old, body, stored.raw, by, sent_at))
        return stored

    def remove(self, plural: str, name: Name, by: str, sent_at: float) -> None:
        before = self._objects[plural].pop(name)
        self.version += 1
        self.uids.discard(before.body["metadata"]["uid"])
        last = at_version(before.body, self.version)
        raw = Stored.of(last, before).raw
        self._note(Change(self.version, plural, "DELETED", last, None, raw, by, sent_at))

    def forget_history(self) -> None:
        """No watch can begin before now, and no list be continued."""
        self.compacted = self.version
        self.log.clear()

    def since(self, version: int) -> Iterator[Change]:
        """What is known of the time after `version`; watches mostly begin near the end."""
        found = len(self.log)
        while found and self.log[found - 1].version > version:
            found -= 1
        yield from self.log[found:]

    def _note(self, change: Change) -> None:
        self.log.append(change)
        for observer in self.observers:
            observer(change)


def at_version(body: Object, version: int) -> Object:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}


REQUIREMENT = re.compile(r"([^=,( ]+)(?: in \(([^)]*)\)|=([^,]*))?")


@lru_cache(maxsize=4096)
def matcher(label_selector: str, field_selector: str) -> Matcher:
    """Whether an object has the labels and the name that are asked for, as far as the clients ask."""
    wanted: list[tuple[str, frozenset[str] | None]] = []
    for key, several, one in REQUIREMENT.findall(label_selector):
        named = f"{key}=" in label_selector or f"{key} in " in label_selector
        wanted.append((key, frozenset(several.split(",")) if several else frozenset({one}) if named else None))
    key, _, name = field_selector.partition("=")
    if key not in ("", "metadata.name"):
        raise ValueError(f"the simulated API server does not select by {key}")

    def matches(body: Object) -> bool:
        meta = body["metadata"]
        if key and meta["name"] != name:
            return False
        labels = meta.get("labels") or {}
        return all(label in labels and (values is None or labels[label] in values) for label, values in wanted)

    return matches
