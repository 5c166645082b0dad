# SPDX-License-Identifier: Apache-2.0
"""List and watch: from where to go on after whatever happens to a watch.

| what happened | what is next |
|---|---|
| a listing was read | a watch from its version |
| an object was added, modified or deleted | it is passed on; the watch goes on |
| a bookmark | the watch goes on; if it ends, the next one begins there |
| an event of another type | nothing |
| an event of type ERROR | a listing, as what has changed since is not known |
| the server has closed the watch, as it does after its time | a watch from the last version seen |
| a request was refused with 410 | a listing: the version is too old |
| it was refused otherwise, or the connection broke | the same once more |
| the server says nothing, not even that the watch ends | a listing |

resourceVersions are compared for equality only.
"""

import json

from elasticjob.kube.errors import ApiError, Gone, error_of
from elasticjob.objects import Object

CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})


class ListAndWatch:
    """`version`: from where to watch on; empty where a listing comes first."""

    def __init__(self) -> None:
        self.version = ""

    def listed(self, version: str) -> None:
        self.version = version

    def take(self, event: Object) -> bool:
        """Whether the event shows a change of an object. Raises ApiError for one of type ERROR."""
        if event["type"] == "ERROR":
            self.version = ""
            status = event["object"].get("code", 500)
            raise error_of(status, json.dumps(event["object"]).encode(), f"the API server answered {status}: ")
        if event["type"] not in CHANGES and event["type"] != "BOOKMARK":
            return False
        self.version = event["object"]["metadata"]["resourceVersion"]
        return event["type"] in CHANGES

    def failed(self, error: ApiError) -> None:
        """A request has."""
        if isinstance(error, Gone):
            self.version = ""

    def fell_silent(self) -> None:
        self.version = ""
