"""What the operator knows of one job, from which all its decisions about it are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob.objects import Object
from elasticjob.reading import Labels, Pod, Record, Taint


@dataclass(slots=True)
class JobView:
    """The newest known form of a job and of what belongs to it, by name; `gone` are the uids that a listing missed.

    `taints`: those of all nodes that have any, by the node's name; `labels`: those of all nodes.

    `heard`: when the first news since the last step came in, in monotonic seconds.
    """

    job: Object | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    workers: dict[str, Record] = field(default_factory=dict)
    taints: Mapping[str, tuple[Taint, ...]] = field(default_factory=dict)
    labels: Mapping[str, Labels] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    heard: float | None = None
