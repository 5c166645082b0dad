"""`kubectl scale`: the group forms anew with the workers that there are."""

from e2e.job import TRAINER, Job, restarts
from e2e.kube import Object, wait_until
from e2e.timings import Timings


def test_scale_up(job: Job, timings: Timings) -> None:
    job.apply(replicas=2)
    first = job.wait_for_round(2)
    before = job.wait_for_training(2)

    scaled = job.scale(4)
    second = job.wait_for_round(4, after=first)
    timings.note("kubectl scale 2 to 4, to the new round", second.at - scaled)
    job.wait_for_training(4, other_than=before)

    assert second.number == first.number + 1, "pods that start seconds apart cost one round"
    assert second.members == (0, 1, 2, 3), "members of the last round keep their ranks"
    assert second.reason == "scaled from 2 to 4"
    assert [restarts(pod) for pod in job.member_pods()] == [0, 0, 0, 0], "no trainer was started again"
    assert job.status["restarts"] == 0


def test_scale_ups_in_a_row_cost_one_round(job: Job) -> None:
    job.apply(replicas=1)
    first = job.wait_for_round(1)
    before = job.wait_for_training(1)

    for replicas in (2, 3, 2, 3):
        job.scale(replicas)
    second = job.wait_for_round(3, after=first)
    job.wait_for_training(3, other_than=before)
    assert second.number == first.number + 1


def test_scale_down_is_planned(job: Job, timings: Timings) -> None:
    job.apply(replicas=3)
    first = job.wait_for_round(3)
    before = job.wait_for_training(3)

    scaled = job.scale(2)
    second = job.wait_for_round(2, after=first)
    timings.note("kubectl scale 3 to 2, to the new round", second.at - scaled)
    job.wait_for_training(2, other_than=before)

    assert second.number == first.number + 1
    assert second.members == (0, 1), "the highest rank goes"
    assert second.reason == "scaled from 3 to 2"
    assert [restarts(pod) for pod in job.member_pods()] == [0, 0]
    assert job.status["restarts"] == 0
    assert exit_code(job, "train-2-0") == 0
    wait_until("the victim's pod to be gone", lambda: "train-2-0" not in job.pod_states.present(), 30)
    assert sorted(job.pods()) == [0, 1]


def exit_code(job: Job, pod: str) -> int:
    """With which code the trainer in `pod` ended, as the watch saw it; the pod may be gone by now."""

    def ended() -> Object | None:
        for sighting in job.pod_states.of(pod):
            for status in sighting.body["status"].get("containerStatuses", ()):
                if status["name"] == TRAINER and "terminated" in status["state"]:
                    terminated: Object = status["state"]["terminated"]
                    return terminated
        return None

    return int(wait_until(f"the trainer in {pod} to end", ended, 30)["exitCode"])
