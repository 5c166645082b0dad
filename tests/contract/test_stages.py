# SPDX-License-Identifier: Apache-2.0
"""Several torchruns of one container: stages of the job, in which all workers take part."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.agents import until
from contract.plane import Job
from contract.trainers import WORKER, trainers

NewJob = Callable[..., Job]


def script(directory: Path, name: str) -> str:
    """The worker by another name."""
    path = directory / name
    path.symlink_to(WORKER)
    return str(path)


@pytest.mark.parametrize("breaks", [False, True], ids=["", "started again between them"])
def test_both_torchruns_of_a_container_run(new_job: NewJob, tmp_path: Path, breaks: bool) -> None:
    """In a container that is started again the first ends at once, and is no failure."""
    job = new_job(replicas=2, maxRestarts=1)
    with trainers(job, tmp_path, [script(tmp_path, "prepare.py")]) as runs:
        runs.following = [script(tmp_path, "train.py")]
        first, second = runs.group(2)
        runs.breaks = {second} if breaks else set()
        for pod in (first, second):
            runs.order(f"finish-{pod}")
        assert runs.group(2, after=2) == [first, second]
        runs.order("finish")
        assert job.closed("Complete")["stage"] == 2

        scripts = Counter((event["pod"], event["script"]) for event in runs.events())
        assert scripts == {(pod, script): 1 for pod in (first, second) for script in ("prepare.py", "train.py")}
        torchruns = {first: 2, second: 3 if breaks else 2}
        runs.codes(sum(torchruns.values()))
        assert Counter(runs.ended) == {(pod, 0): count for pod, count in torchruns.items()}
        assert job.view()["job"]["status"]["restarts"] == 0


def test_a_torchrun_that_fails_in_a_later_stage_is_a_failure_of_that(new_job: NewJob, tmp_path: Path) -> None:
    """Killed with its container, which runs the first once more."""
    job = new_job(replicas=2, maxRestarts=1)
    with trainers(job, tmp_path, [script(tmp_path, "prepare.py")]) as runs:
        runs.following = [script(tmp_path, "train.py")]
        first, second = runs.group(2)
        for pod in (first, second):
            runs.order(f"finish-{pod}")
        assert runs.group(2, after=2) == [first, second]
        runs.kill(second)
        assert runs.group(2, after=4) == [first, second]
        assert [event["script"] for event in runs.events()[4:]] == ["train.py", "train.py"]
        assert job.view()["job"]["status"]["restarts"] == 1
        runs.order("finish")
        job.closed("Complete")


@pytest.mark.parametrize("late", [False, True], ids=["at the first round", "beside a round"])
def test_containers_that_run_different_scripts_are_told_so(new_job: NewJob, tmp_path: Path, late: bool) -> None:
    job = new_job(replicas=1 if late else 2, maxReplicas=2)
    names = [f"{job.name}-{index}-0" for index in range(2)]
    with trainers(job, tmp_path, [script(tmp_path, "prepare.py")]) as runs:
        runs.of_pod[names[1]] = [script(tmp_path, "train.py")]
        if late:
            runs.group(1)
            job.scale(2)
        else:
            said = job.closed("Failed")["reason"]
            assert "runs train.py" in said
            assert "runs prepare.py" in said
        code = dict.fromkeys(names if not late else names[1:], 1)
        until(lambda: dict(runs.ended).keys() >= code.keys(), f"{list(code)} to end; so far {runs.ended}")
        assert dict(runs.ended) == code  # also those of a container that is started again before its pod goes

        def ends_with_both() -> bool:  # one that is started again begins its log with other lines
            last = job.plane.log_of(f"{names[1]}-trainer").splitlines()[-1]
            return last.startswith("elasticjob: ") and "train.py" in last and "prepare.py" in last

        until(ends_with_both, "the log to end with the names of both")
