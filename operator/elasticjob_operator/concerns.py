# SPDX-License-Identifier: Apache-2.0
"""The concerns of a job, in the order in which each step asks them.

The order matters where a concern reads what another has found or marked. Events are announced in this order too.
"""

from elasticjob_operator.actions.access import Access
from elasticjob_operator.actions.gang import Gang
from elasticjob_operator.actions.sidecar_questions import SidecarQuestions
from elasticjob_operator.job.absent import Absences
from elasticjob_operator.job.bad_nodes import BadNodes
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.deadline import Deadline
from elasticjob_operator.job.evictions import Evictions
from elasticjob_operator.job.false_alarms import FalseAlarms
from elasticjob_operator.job.finishing import FinishingContainers
from elasticjob_operator.job.network import NetworkFaults
from elasticjob_operator.job.restless import Restless
from elasticjob_operator.job.round_clocks import RoundClocks
from elasticjob_operator.job.stalls import Hangs
from elasticjob_operator.job.starts import Starts


def concerns_of(
    questions: SidecarQuestions, clocks: RoundClocks, gang: Gang, evictions: Evictions, access: Access
) -> tuple[Concern, ...]:
    """The concerns of one job. Those that actions need too are given."""
    return (
        questions,
        NetworkFaults(),  # a sidecar in trouble explains its silence
        FinishingContainers(),
        Hangs(),
        Starts(),
        clocks,
        BadNodes(),
        FalseAlarms(),  # removes suspicions, which NetworkFaults reads
        Restless(),  # reads hangs
        gang,  # counts the workers as marked above
        Deadline(),  # does not run while the job is suspended, as for lack of quota
        Absences(),  # name the troubles of sidecars and the avoided nodes
        evictions,
        access,
    )
