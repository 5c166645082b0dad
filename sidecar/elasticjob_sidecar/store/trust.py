# SPDX-License-Identifier: Apache-2.0
"""Keep the trust set of rank 0's tunnel at exactly the participants of the round whose store it serves.

Their certificates are in their ElasticWorkers, each with its incarnation: the API server permits no change of one
without the other, and under the chart's admission policy only its own pod writes a record.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator

from elasticjob.api import Member, RendezvousPhase, RendezvousStatus
from elasticjob.certificates import der_of
from elasticjob.kube.errors import ApiError
from elasticjob.objects import Object
from elasticjob_sidecar.api_server.client import REFUSALS, KubeApi
from elasticjob_sidecar.api_server.remedies import explained
from elasticjob_sidecar.api_server.retry import backoff
from elasticjob_sidecar.driver import Driver
from elasticjob_sidecar.log_limits import TroubleLog
from elasticjob_sidecar.membership.modes import Mode
from elasticjob_sidecar.store.transport import PeerTransport

log = logging.getLogger(__name__)

MAX_ASKED_BY_INDEX = 64  # up to this many newcomers are read by index; for more, all records are listed


class RoundTrust:
    def __init__(
        self,
        kube: KubeApi,
        job: str,
        driver: Driver,
        transport: PeerTransport,
        failed: Callable[[str, ApiError], None],
        pod_of: Callable[[int], str],
    ) -> None:
        """`pod_of` returns the name of the pod of an index that counts."""
        self._kube, self._job, self._driver, self._transport, self._failed = kube, job, driver, transport, failed
        self._pod_of = pod_of
        self._known: dict[Member, bytes] = {}  # certificates of members, in DER form
        self._looked = False
        self.trouble = ""  # why some members of the round cannot reach its store, in a sentence
        self.refused = False  # whether the API server refuses to list the members

    async def run(self) -> None:
        """Follow the job's rounds, forever."""
        round = 0  # the round whose members are trusted
        pauses, trouble_log = backoff(), TroubleLog(log)
        while True:
            next_change, served = self._driver.next_change, self._served()
            if served is None:
                round = 0
                self._is_well()
                self._transport.trust_nobody()
                await self._look_ahead()
            elif served.round != round:
                try:
                    missing, self.refused = await self._trust(served), False
                except ApiError as failure:
                    self._failed("list", failure)
                    missing, self.refused = explained(failure, self._job), isinstance(failure, REFUSALS)
                except OSError as error:  # the key is passed to TLS in a file, and no more files may be available
                    missing = str(error)
                if missing:
                    self.trouble = f"not all members of round {served.round} can be let in to its store: {missing}"
                    trouble_log.warn(self.trouble)
                    await self._pause(pauses.next(), served.round)
                    continue
                round = served.round
                self._is_well()
                pauses.reset()
                trouble_log.over(f"all members of round {round} can be let in to its store")
            await next_change.wait()

    async def _pause(self, seconds: float, round: int) -> None:
        """Wait, whatever changes meanwhile; but the trouble of one round does not delay the next."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (served := self._served()) is not None and served.round == round:
                    await self._driver.next_change.wait()

    def _is_well(self) -> None:
        self.trouble, self.refused = "", False

    async def _look_ahead(self) -> None:
        """Before the first round forms: worker 0, its likely rank 0, reads the certificates while all wait anyway."""
        now = self._driver.standing
        forming = now.job is not None and now.job.phase is RendezvousPhase.FORMING
        if forming and now.mode is Mode.JOINING and now.me.index == 0 and not self._looked:
            self._looked = True
            with contextlib.suppress(ApiError):  # they are read again when the round is formed
                await self._learn([])

    async def _learn(self, indices: list[int]) -> None:
        records = await self._kube.list_workers(self._job, indices)
        self._known |= dict(_certificates(records, self._pod_of))

    def _served(self) -> RendezvousStatus | None:
        """The job's status, if this worker is rank 0 of a formed round with others."""
        job, me = self._driver.standing.job, self._driver.standing.me
        if job is None or job.phase is RendezvousPhase.FORMING or len(job.participants) < 2:
            return None
        return job if job.participants[0] == me else None

    async def _trust(self, served: RendezvousStatus) -> str:
        """Admit the round's members whose certificates are known. Returns what is missing, in a sentence."""
        members = served.participants[1:]
        if unknown := [member.index for member in members if member not in self._known]:
            await self._learn(unknown if len(unknown) <= MAX_ASKED_BY_INDEX else [])
        self._known = {member: self._known[member] for member in members if member in self._known}
        self._transport.trust(served.round, self._known)
        missing = [str(member.index) for member in members if member not in self._known]
        return f"no valid certificate of worker {', '.join(missing)}" if missing else ""


def _certificates(records: list[Object], pod_of: Callable[[int], str]) -> Iterator[tuple[Member, bytes]]:
    """The certificates in ElasticWorkers, each with its incarnation.

    Only the record of the pod that counts is valid: no pod speaks for another worker, not even one that was created
    with a worker's name and service account.
    """
    for record in records:
        try:
            name, spec = record["metadata"]["name"], record["spec"]
            if name == pod_of(spec["index"]):
                yield Member(index=spec["index"], id=spec["id"]), der_of(spec["certificate"])
        except (KeyError, TypeError, ValueError) as error:
            log.debug("an ElasticWorker without a certificate: %s", error)
