# SPDX-License-Identifier: Apache-2.0
"""The clocks of a job's rounds from one step to the next. Pure: the time is an argument."""

from dataclasses import replace

from elasticjob.rendezvous import Clocks, Event
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.report import Report

Phase = tuple[int, RendezvousPhase]  # the round's number and its phase


class RoundClocks(Concern):
    """The clocks of one job. They are kept once the decision that they belong to is agreed."""

    def __init__(self, now: float) -> None:
        self.known = Clocks(opened=now, formed=now)
        self._phase: Phase | None = None  # that of the clocks, once known

    def of(self, phase: Phase, now: float) -> Clocks:
        """The clocks of the phase that the status names. If the known clocks are of another phase, the answer to the
        write that began this one was lost. As far as is known here, the phase then begins now."""
        if self._phase not in (None, phase):
            clocks = replace(self.known, opened=now, formed=now, min_reached=None, newcomer=None)
            self.known, self._phase = replace(clocks, all_running=None, all_spoke=None), phase
        return self.known

    def after(self, report: Report) -> tuple[Event, ...]:
        state = report.decision.state
        self.known, self._phase = state.clocks, (state.round, state.phase)
        return report.decision.events

    def again(self, report: Report, now: float) -> float | None:
        return None if report.decision.wake_at is None else report.decision.wake_at - now
