"""What the operator knows of one job, from which all its decisions about it are made."""

from dataclasses import dataclass, field

from elasticjob.objects import Object


@dataclass(slots=True)
class JobView:
    """The newest known form of a job and of what belongs to it, by name; `gone` are the uids that a listing missed.

    `heard`: when the first news since the last step came in, in monotonic seconds.
    """

    job: Object | None = None
    pods: dict[str, Object] = field(default_factory=dict)
    workers: dict[str, Object] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    heard: float | None = None
