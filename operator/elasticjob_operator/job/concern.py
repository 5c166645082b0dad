# SPDX-License-Identifier: Apache-2.0
"""What a concern of the operator consists of. Pure: a concern does nothing to the cluster, and is told the time."""

from collections.abc import Iterable

from elasticjob.rendezvous import Event
from elasticjob_operator.job.report import Report


class Concern:
    """One responsibility of the operator for one job.

    Each step calls `see` of all concerns, then decides, calls `judge` of all, and writes the status. Only then follow
    `after`, the actions on the cluster, and `again`. `elasticjob_operator.concerns` has the order. A concern reads what
    an earlier one has found as a fact of the report.

    What a concern knows between two steps is its own, and all of it can be lost. If the status cannot be written, the
    step ends, and the next one calls `see` and `judge` again for the same state.
    """

    def see(self, report: Report) -> Report:
        """Before the decision: adds a fact, and changes workers and bounds to what the rules are to see."""
        return report

    def judge(self, report: Report) -> Report:
        """After the decision: adds a fact for the status, or for what follows from the status."""
        return report

    def after(self, report: Report) -> Iterable[Event]:
        """Once the status is agreed: the events to announce. What must not change before that is remembered here."""
        return ()

    def again(self, report: Report, now: float) -> float | None:
        """Seconds until time alone may change something; None if it cannot. `now`: as of the leader's clock, after the
        actions."""
        return None
