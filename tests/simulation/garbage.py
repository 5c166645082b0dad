# SPDX-License-Identifier: Apache-2.0
"""The garbage collector: what belongs to nobody any more is deleted, some time later."""

from random import Random

from simulation.api_server import ApiServer
from simulation.loop import VirtualLoop
from simulation.store import Change, Object

WHO = "garbage collector"
AGAIN_SECONDS = 0.5


class GarbageCollector:
    """`slowest`: seconds until it sees that an owner is gone, at most."""

    def __init__(self, loop: VirtualLoop, server: ApiServer, dice: Random) -> None:
        self._loop, self._server, self._dice = loop, server, dice
        self.slowest = 2.0
        self._dependents: dict[str, dict[tuple[str, str, str], None]] = {}  # by the owner's uid
        server.store.observers.append(self._see)

    def _see(self, change: Change) -> None:
        meta = change.body["metadata"]
        if change.new is not None:
            for owner in meta.get("ownerReferences", ()):
                place = (change.plural, meta["namespace"], meta["name"])
                known = self._dependents.setdefault(owner["uid"], {})
                if place not in known:
                    known[place] = None
                    if owner["uid"] not in self._server.store.uids:
                        self._soon(self._collect, owner["uid"])
            if finalizers := meta.get("finalizers"):
                for finalizer, work in (("orphan", self._orphan), ("foregroundDeletion", self._foreground)):
                    if finalizer in finalizers and "deletionTimestamp" in meta:
                        self._soon(work, change.plural, meta["namespace"], meta["name"], meta["uid"])
        elif meta["uid"] in self._dependents:
            self._soon(self._collect, meta["uid"])

    def _soon(self, work: object, *args: str) -> None:
        self._loop.call_outside(self._dice.uniform(0.02, self.slowest), work, *args)  # type: ignore[arg-type]

    def _collect(self, uid: str) -> None:
        """Deletes those of which every owner is gone."""
        store = self._server.store
        if uid in store.uids:
            return
        for plural, namespace, name in list(self._dependents.pop(uid, ())):
            found = store.find(plural, (namespace, name))
            if found is None:
                continue
            owners = found.body["metadata"].get("ownerReferences", ())
            if not any(owner["uid"] == uid for owner in owners):
                continue
            if not any(owner["uid"] in store.uids for owner in owners):
                self._server.delete(plural, found, WHO)

    def _orphan(self, plural: str, namespace: str, name: str, uid: str) -> None:
        """What depends on it stays, and belongs to nobody."""
        for kind, space, dependent in list(self._dependents.pop(uid, ())):

            def disown(body: Object) -> None:
                owners = [one for one in body["metadata"].get("ownerReferences", ()) if one["uid"] != uid]
                body["metadata"]["ownerReferences"] = owners
                if not owners:
                    del body["metadata"]["ownerReferences"]

            self._server.change(kind, space, dependent, disown, WHO)
        self._drop("orphan", plural, namespace, name, uid)

    def _foreground(self, plural: str, namespace: str, name: str, uid: str) -> None:
        """It goes after what depends on it."""
        left = False
        for kind, space, dependent in list(self._dependents.get(uid, ())):
            found = self._server.store.find(kind, (space, dependent))
            if found is None or all(one["uid"] != uid for one in found.body["metadata"].get("ownerReferences", ())):
                continue
            left = True
            if "deletionTimestamp" not in found.body["metadata"]:
                self._server.delete(kind, found, WHO)
        if left:
            self._loop.call_outside(AGAIN_SECONDS, self._foreground, plural, namespace, name, uid)
        else:
            self._drop("foregroundDeletion", plural, namespace, name, uid)

    def _drop(self, finalizer: str, plural: str, namespace: str, name: str, uid: str) -> None:
        def change(body: Object) -> None:
            finalizers = [one for one in body["metadata"].get("finalizers", ()) if one != finalizer]
            body["metadata"]["finalizers"] = finalizers

        self._server.change(plural, namespace, name, change, WHO, uid)
