# SPDX-License-Identifier: Apache-2.0
"""The concerns of a job, in the order in which each step asks them.

The order matters where one reads what another has found, or changes what it has changed. Events are announced in it.
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
    """The concerns of one job: those given, which others need to know too, and all the rest."""
    return (
        questions,
        NetworkFaults(),  # the troubles of sidecars explain a silence
        FinishingContainers(),
        Hangs(),
        Starts(),
        clocks,
        BadNodes(),
        FalseAlarms(),  # hides suspicions, which NetworkFaults has read
        Restless(),  # nobody who hangs
        gang,  # counts workers as all above have marked them
        Deadline(),  # does not run in a suspension, which may be for lack of quota
        Absences(),  # by the troubles of sidecars, and by the nodes that are avoided
        evictions,
        access,
    )
