# SPDX-License-Identifier: Apache-2.0
"""What the processes below an agent inherit, and which of them may speak for the job."""

from elasticjob_torch.environment import ENDPOINT, MARK, HandedOn, endpoint_of, handed_on

POD = {
    "PATH": "/bin",
    "PET_RDZV_BACKEND": "elasticjob",
    "PET_RDZV_ENDPOINT": "127.0.0.1:1",
    "PET_RDZV_ID": "uid",
    "PET_NNODES": "1:4",
    "PET_MAX_RESTARTS": "9",
    "PET_LOG_DIR": "/logs",  # of the user
    "ELASTICJOB_NAME": "digits",
}
BELOW = {"PATH": "/bin", "ELASTICJOB_NAME": "digits", ENDPOINT: "127.0.0.1:1"}


def test_processes_inherit_nothing_that_is_torchruns():
    assert handed_on(POD, "127.0.0.1:1") == BELOW


def test_an_agents_environment_is_what_its_processes_inherit_until_it_ends():
    environment = dict(POD)
    inherited = HandedOn(environment, "127.0.0.1:1")
    assert environment == BELOW
    environment |= {MARK: "7:1:uid", "OMP_NUM_THREADS": "1"}
    for _ in range(2):
        inherited.end()
        assert environment == {**POD, "OMP_NUM_THREADS": "1"}


def test_a_training_process_finds_the_sidecar():
    process = {**BELOW, MARK: "7:1:uid", "TORCHELASTIC_RUN_ID": "uid"}
    assert endpoint_of(process) == "127.0.0.1:1"
    assert endpoint_of({**BELOW, MARK: "7:1:uid"}) == "127.0.0.1:1", "of an agent without torch"


def test_what_a_torchrun_below_the_agent_has_started_does_not_speak_for_the_job():
    for run_id in ("none", "0c1d", ""):  # --rdzv-id is left out, --standalone, empty
        assert endpoint_of({**BELOW, MARK: "7:1:uid", "TORCHELASTIC_RUN_ID": run_id}) == ""


def test_a_process_that_no_agent_has_started_finds_it_by_the_pods_variables():
    assert endpoint_of(POD) == "127.0.0.1:1"
    assert endpoint_of({**POD, "PET_RDZV_BACKEND": "c10d"}) == ""
    assert endpoint_of({"PET_RDZV_ENDPOINT": "127.0.0.1:1"}) == ""
    assert endpoint_of({}) == ""
