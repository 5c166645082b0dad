# SPDX-License-Identifier: Apache-2.0
"""One process of the operator over several terms: the program is executed anew whenever the Lease is lost."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support import ControlPlane
from support.ports import free_port
from support.waiting import exit_code, wait_until

PAGE = os.sysconf("SC_PAGE_SIZE")
BALLAST = 300 * 2**20
EXECUTED = "the program is executed anew"
# what a term's cache would be; for as long as a test wants to see that it is gone, no other term makes its own
WITH_BALLAST = """
import os, time
from elasticjob_operator import __main__, metrics
begin = metrics.begin_term
def begin_term(*given):
    while not os.path.exists(os.environ["MAY_HOLD"]):
        time.sleep(0.01)
    globals()["held"] = [bytes([1]) * 1000 for _ in range(int(os.environ["BALLAST"]) // 1000)]
    begin(*given)
metrics.begin_term = begin_term
__main__.main()
"""


class Operator(NamedTuple):
    plane: ControlPlane
    namespace: str
    process: "subprocess.Popen[bytes]"
    log: Path
    may_hold: Path

    def take_lease(self, holder: str = "") -> None:
        """Under the operator, which is told at its next renewal; it is another's for an hour, or free again."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/elasticjob-operator"
        taken = {"spec": {"holderIdentity": holder} | ({"leaseDurationSeconds": 3600} if holder else {})}
        self.plane.request("PATCH", path, taken, content_type="application/merge-patch+json")

    def leads_in(self, term: int) -> None:
        wait_until(f"term {term}", lambda: self.said(f"leading in term {term}\n"), seen=self.log.read_text)

    def said(self, text: str) -> bool:
        return text in self.log.read_text()

    def memory(self) -> int:
        """Resident, in bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE


@pytest.fixture
def operator(with_crds: ControlPlane, tmp_path: Path) -> Iterator[Operator]:
    namespace, log = f"terms-{secrets.token_hex(3)}", tmp_path / "log"
    with_crds.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    flags = ["--sidecar-image=none", f"--namespaces={namespace}", f"--lease-namespace={namespace}"]
    command = [sys.executable, "-c", WITH_BALLAST, *flags, f"--health-port={free_port()}"]
    may_hold = tmp_path / "may-hold"
    may_hold.touch()
    settings = {"KUBECONFIG": str(with_crds.kubeconfig), "BALLAST": str(BALLAST), "MAY_HOLD": str(may_hold)}
    environment = os.environ | settings
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stderr=output)
    yield Operator(with_crds, namespace, process, log, may_hold)
    process.kill()
    process.wait()


def test_nothing_of_a_term_outlives_it(operator: Operator) -> None:
    """A cache holds all objects: it would be there twice in the next term."""
    for term in (1, 2, 3):
        operator.may_hold.touch()
        operator.leads_in(term)
        wait_until("what the term holds", lambda: operator.memory() > BALLAST)
        operator.may_hold.unlink()
        operator.take_lease()
        wait_until("its release", lambda: operator.memory() < BALLAST / 2, seen=operator.memory)
    assert operator.process.poll() is None
    assert operator.log.read_text().count(EXECUTED) == 3


def test_a_signal_between_two_executions_is_not_lost(operator: Operator) -> None:
    operator.leads_in(1)
    operator.take_lease("another")  # so that there is time between the two, however late this is
    wait_until("the end of the term", lambda: operator.said(EXECUTED), pause=0.001)
    operator.process.send_signal(signal.SIGTERM)
    assert exit_code(operator.process) == 0
    assert not operator.said("leading in term 2")
