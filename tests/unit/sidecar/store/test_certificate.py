# SPDX-License-Identifier: Apache-2.0
"""The process that makes a sidecar's certificate."""

import subprocess
import sys

from support.waiting import DEADLINE


def test_it_says_nothing_when_the_sidecar_is_stopped_meanwhile() -> None:
    making = subprocess.Popen(
        [sys.executable, "-m", "elasticjob_sidecar.store.certificate"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert making.stdout is not None
    making.stdout.close()
    making.stdout = None
    _, said = making.communicate(timeout=DEADLINE)
    assert said == b""
