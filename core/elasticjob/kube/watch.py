# SPDX-License-Identifier: Apache-2.0
"""List and watch: how to go on after each event of a watch.

| what happened | what is next |
|---|---|
| a list was read | a watch from its version |
| an object was added, modified or deleted | it is passed on; the watch goes on |
| a bookmark | the watch goes on; the next watch begins there |
| an event of another type | nothing |
| an event of type ERROR | a list, as changes may have been missed |
| the server closed the watch, as it does after its timeout | a watch from the last version seen |
| a request was refused with 410 | a list: the version is too old |
| another refusal, or the connection broke | the same request again |
| the server is silent, and does not even end the watch | a list |

resourceVersions are compared only for equality.
"""

import json

from elasticjob.kube.errors import ApiError, Gone, error_of
from elasticjob.objects import Object

CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})


class ListAndWatch:
    """The next request of a list-and-watch loop. `version`: where to watch from; empty for a list."""

    def __init__(self) -> None:
        self.version = ""

    def listed(self, version: str) -> None:
        self.version = version

    def take(self, event: Object) -> bool:
        """Whether the event shows a change of an object. Raises ApiError for an event of type ERROR."""
        if event["type"] == "ERROR":
            self.version = ""
            status = event["object"].get("code", 500)
            raise error_of(status, json.dumps(event["object"]).encode(), with_status=True)
        if event["type"] not in CHANGES and event["type"] != "BOOKMARK":
            return False
        self.version = event["object"]["metadata"]["resourceVersion"]
        return event["type"] in CHANGES

    def failed(self, error: ApiError) -> None:
        if isinstance(error, Gone):
            self.version = ""

    def fell_silent(self) -> None:
        self.version = ""
