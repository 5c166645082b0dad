# SPDX-License-Identifier: Apache-2.0
"""All objects of one job as the API server returned them, and when."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from elasticjob.objects import Object


class Leader(NamedTuple):
    """The operators' Lease. `readable`: whether the user may read it. `lease`: None if there is none. `beats`: whether
    it is being renewed, as far as can be seen. `lacks`: the rights that the leader lacks in the job's namespace; None
    if that could not be checked or needed no check."""

    name: str
    readable: bool = False
    lease: Object | None = None
    beats: bool = False
    lacks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The job, its pods and ElasticWorkers, the PersistentVolumeClaims that its pods name, and the events of all of
    them. `now`: the API server's time. `hidden`: the kinds that the user may not see."""

    job: Object
    pods: tuple[Object, ...] = ()
    records: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    events: tuple[Object, ...] = ()
    leader: Leader
    now: datetime
    hidden: tuple[str, ...] = ()


def events_of(scene: Scene, kind: str, name: str) -> list[Object]:
    """The events of one object, the oldest first."""
    found = [
        event
        for event in scene.events
        if (event["involvedObject"].get("kind"), event["involvedObject"].get("name")) == (kind, name)
    ]
    return sorted(found, key=event_time)


def event_time(event: Object) -> str:
    """When the event was last seen, in RFC 3339. `lastTimestamp` has whole seconds."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("eventTime"), event.get("lastTimestamp"))
    return next((str(time) for time in times if time), str(event["metadata"].get("creationTimestamp", "")))
