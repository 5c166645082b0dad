# SPDX-License-Identifier: Apache-2.0
"""The cluster tests' agent without torch, at a sidecar that the test plays: it asks and tells what torchrun does."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.trainer_sidecar import RUN_ID, Sidecar, handed

ROOT = Path(__file__).parents[3]
SECONDS = 120
# one line of each start; ends as the file "end" says
SCRIPT = """
import os, pathlib, sys, time
print(os.environ["RANK"], os.environ["WORLD_SIZE"], flush=True)
end = pathlib.Path(sys.argv[0]).with_name("end")
while not end.exists():
    time.sleep(0.01)
said = end.read_text()
end.unlink()
if said:
    raise ValueError(said)
"""


@pytest.fixture
def sidecar() -> Iterator[Sidecar]:
    played = Sidecar()
    played.start()
    yield played
    played.stop()


def test_it_joins_restarts_its_script_tells_of_a_failure_and_finishes(sidecar: Sidecar, tmp_path: Path) -> None:
    script, end = tmp_path / "script.py", tmp_path / "end"
    script.write_text(SCRIPT)
    sidecar.answers["POST /v1/rendezvous"] = [handed(1), handed(2, rank=1, world_size=3), handed(3, world_size=1)]
    sidecar.answers["GET /v1/store"] = [(200, {"host": "127.0.0.1", "port": 27400})]
    sidecar.tell(round=1, phase="Formed")
    ours = {"PET_RDZV_ENDPOINT": f"127.0.0.1:{sidecar.port}", "PET_RDZV_ID": RUN_ID, "ELASTICJOB_STOP_SECONDS": "10"}
    environment = os.environ | ours | {"PYTHONPATH": str(ROOT / "trainer")}
    command = [sys.executable, str(ROOT / "tests/e2e/agent.py"), str(script)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        late = threading.Timer(SECONDS, agent.kill)
        late.start()
        try:
            assert agent.stdout.readline() == "0 2\n"
            sidecar.tell(round=2, phase="Formed", waiting=1)
            assert agent.stdout.readline() == "1 3\n"
            (tmp_path / "text").write_text("no such data")
            (tmp_path / "text").rename(end)  # whole: the script reads it as soon as it is there
            assert agent.stdout.readline() == "0 1\n"
            end.touch()
            assert agent.wait() == 0
        finally:
            agent.kill()
            late.cancel()
    joins = [(join["after"], join["cause"], join.get("detail", "")) for join in sidecar.said("POST /v1/rendezvous")]
    failure = "rank 1, exit code 1: ValueError: no such data"
    assert joins == [(0, "Started", ""), (1, "MembershipChanged", ""), (2, "WorkerFailed", failure)]
    assert [told["round"] for told in sidecar.said("POST /v1/store")] == [1, 3]
    assert [told["round"] for told in sidecar.said("POST /v1/finish")] == [3]
