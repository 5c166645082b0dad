# SPDX-License-Identifier: Apache-2.0
"""Workers that end at different times, or while others start again."""

import pytest

from e2e.disruption import container_status, signal_worker_process, touch
from e2e.faults.fault import Fault
from e2e.job import TRAINER, Job, status_of, wall
from elasticjob.members import Members
from support.waiting import settled


@pytest.mark.extended
@pytest.mark.torchrun
@pytest.mark.patient
@pytest.mark.fault("finish-uneven")
def test_finish_uneven(fault: Fault) -> None:
    """Rank 2 ends 20 seconds before rank 1, and rank 0 saves for two minutes: `Complete` only after the last."""
    job = fault.job
    # more than the 30 s after which a silent worker of this test is lost
    saving, ending = (120, 20) if fault.whole else (36, 2)
    zero, *_ = fault.start(3, env={"FINISH_SECONDS": f"{saving},{ending},0"})
    fault.strike()
    job.finish_training()
    job.until("ranks 2 and 1 to succeed", lambda: have_succeeded(job, [1, 2]), 80)
    job.wait_for_condition("Complete", seconds=saving + 90)

    saved = job.logged(zero, "saved")
    assert saved - fault.struck >= saving
    assert saved < wall(completed(job)), "the job waited for the last worker"
    assert job.rounds()[-1] == fault.first, "the end of one worker is no loss to the others"
    assert job.restarts == 0
    pods = settled(job.pods(), "a container is not started again after the job's end")
    assert [container_status(pod, TRAINER)["restartCount"] for pod in pods.values()] == [0, 0, 0]
    fault.row.lost_work_steps = 0


def have_succeeded(job: Job, indices: list[int]) -> bool:
    """Whether a status named these and no others. Their containers may go on: torch's agents wait for each other."""
    agreed = [status_of(one).get("rendezvous", {}) for one in job.jobs.of(job.name)]
    fields = ("finished", "finishing")
    named = [sorted(member.index for field in fields for member in Members.read(one.get(field, ""))) for one in agreed]
    return indices in named


def completed(job: Job) -> float:
    """When the status first said that the job is complete."""
    return next(
        sighting.at
        for sighting in job.jobs.of(job.name)
        for condition in status_of(sighting).get("conditions", ())
        if (condition["type"], condition["status"]) == ("Complete", "True")
    )


@pytest.mark.extended
@pytest.mark.fault("finish-beside-restart")
def test_finish_beside_restart(fault: Fault) -> None:
    """Rank 1 has finished when rank 0 fails: rank 0 goes on alone, at once, and the job completes."""
    job = fault.job
    pods = fault.start(2, env={"FINISH_SECONDS": "inf,0"})
    job.finish_training()
    job.until("rank 1 to succeed", lambda: have_succeeded(job, [1]), 60)
    fault.strike(pods[0])
    signal_worker_process(pods[0], TRAINER)
    new = job.wait_for_round(1, after=fault.first)
    fault.row.new_round_seconds = fault.entered(new)
    assert new.number == fault.next_number
    assert new.members == (0,)
    assert job.restarts == 1
    touch(pods[0], TRAINER, "/tmp/saved")
    job.wait_for_condition("Complete")
    assert job.rounds()[-1] == new
