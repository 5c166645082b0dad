"""What keeps a job from its full size, as its status says it: the quota of a gang."""

from pydantic import Field

from elasticjob.fields import SmallCount
from elasticjob.schema import Model


class Admitted(Model):
    """The part of a gang that has quota."""

    replicas: SmallCount = Field(
        description="How many of spec.replicas have quota; with 0 the job is as if it was suspended."
    )
    spares: SmallCount = Field(0, description="How many of spec.spareReplicas have quota beside them.")
