# SPDX-License-Identifier: Apache-2.0
"""Asks the sidecars of one job what keeps them from joining. Asking runs beside the job's steps: no step waits for an
answer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime

from elasticjob.reading.waits import Wait
from elasticjob.rendezvous.model import PodKey
from elasticjob_operator.job.concern import Concern
from elasticjob_operator.job.outcome import Done, LookAgain
from elasticjob_operator.job.report import Report
from elasticjob_operator.job.sidecars import MOST, SidecarQuestion, SidecarTroubles, marked, to_ask, troubles

AGAIN_SECONDS = 10.0  # until a sidecar is asked again
ANSWERED_SECONDS = 1.0  # until the next look for an answer

Ask = Callable[[str, int], Awaitable[str | None]]  # address and port


class SidecarQuestions(Concern):
    """`said`: the last answer of each sidecar that is to be asked, None if it did not answer."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._asking: dict[PodKey, asyncio.Task[None]] = {}
        self._asked_at: dict[PodKey, float] = {}
        self._troubles: Mapping[PodKey, Wait] = {}
        self.answers: dict[PodKey, str | None] = {}

    def see(self, report: Report) -> Report:
        """The troubles are those of the last step."""
        found = SidecarTroubles(waits=self._troubles)
        return report.noting(found, workers=marked(report.workers, self._troubles))

    def judge(self, report: Report) -> Report:
        asked = to_ask(report.spec, report.decision.state, report.workers, report.observer.pods)
        self._troubles = troubles(asked, self.answers)
        return report.noting(SidecarTroubles(asked, self._troubles))

    async def keep(self, report: Report) -> Done | LookAgain:
        return self.ask(report.of(SidecarTroubles).asked, datetime.fromisoformat(report.now))

    def ask(self, calls: Iterable[SidecarQuestion], wall_clock: datetime) -> Done | LookAgain:
        """Asks the sidecars that are due, and forgets those that are not in `calls`."""
        wanted = {one.pod_key: one for one in calls}
        for known in (self.answers, self._asked_at):
            for pod_key in known.keys() - wanted.keys():
                del known[pod_key]
        now = asyncio.get_running_loop().time()
        waits = [max(self._left(one, now), (one.at - wall_clock).total_seconds()) for one in wanted.values()]
        due = [one for one, left in zip(wanted.values(), waits, strict=True) if left <= 0]
        for one in due[: MOST - len(self._asking)]:
            self._asked_at[one.pod_key] = now
            self._asking[one.pod_key] = asyncio.create_task(self._note(one))
        if self._asking:
            return LookAgain(ANSWERED_SECONDS)
        return LookAgain(max(ANSWERED_SECONDS, min(waits))) if waits else Done()

    def _left(self, one: SidecarQuestion, now: float) -> float:
        """Seconds until the sidecar may be asked again."""
        asked_at = self._asked_at.get(one.pod_key)
        return 0.0 if asked_at is None else asked_at + AGAIN_SECONDS - now

    async def _note(self, one: SidecarQuestion) -> None:
        try:
            self.answers[one.pod_key] = await self._ask(one.address, one.port)
        finally:
            del self._asking[one.pod_key]
