# SPDX-License-Identifier: Apache-2.0
"""What the operator knows of one job. All its decisions about the job are made from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob.objects import Object
from elasticjob.reading import Node, Pod, Record


@dataclass(slots=True)
class JobView:
    """The newest known form of a job and of its objects, by name.

    `nodes`: all watched nodes, by name. `heard`: when the first event since the last step came in, in monotonic
    seconds. `shows`: in `job` only the progress is newer than in the form before. `awaited`: how many joins the forming
    round still waited for at the last step, less those since; a wrong number delays a step by 0.1 s at most.
    """

    job: Object | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    workers: dict[str, Record] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    heard: float | None = None
    shows: bool = False
    awaited: int = 0
