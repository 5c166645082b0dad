"""A job on stand-in kubelets: what the other tests of this folder build on."""

from e2e.job import Job


def test_a_job_trains_scales_and_completes(job: Job) -> None:
    job.apply(replicas=2, maxReplicas=4)
    first = job.wait_for_round(2)
    training = job.wait_for_training(2)
    job.scale(3)
    second = job.wait_for_round(3, after=first)
    job.wait_for_training(3, other_than=training)
    assert second.reason == "scaled from 2 to 3"
    job.finish_training()
    job.wait_for_condition("Complete")
