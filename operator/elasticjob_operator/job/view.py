# SPDX-License-Identifier: Apache-2.0
"""What the operator knows of one job, from which all its decisions about it are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob.objects import Object
from elasticjob.reading import Node, Pod, Record


@dataclass(slots=True)
class JobView:
    """The newest known form of a job and of what belongs to it, by name.

    `nodes`: all that are watched, by name.

    `heard`: when the first news since the last step came in, in monotonic seconds.
    """

    job: Object | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    workers: dict[str, Record] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    heard: float | None = None
