# SPDX-License-Identifier: Apache-2.0
"""What torchrun will start, from its own command line."""

import pytest

from elasticjob_torch.warm.command import can_be_prestarted, expect, guessed_environment
from elasticjob_torch.warm.orders import _OF_A_ROUND

PYTHON = "/usr/bin/python"
ENVIRONMENT = {"PET_NPROC_PER_NODE": "2"}


@pytest.mark.parametrize(
    ("argv", "arguments", "processes"),
    [
        (["/opt/bin/torchrun", "train.py", "--lr", "1"], ["train.py", "--lr", "1"], 2),
        (["torchrun", "--nproc-per-node=4", "--nnodes=1:2", "train.py"], ["train.py"], 4),
        (["torchrun", "--rdzv-backend=elasticjob", "train.py"], ["train.py"], 2),
        (["torchrun", "-m", "pkg.train", "-m"], ["-m", "pkg.train", "-m"], 2),
        (["/lib/torch/distributed/run.py", "train.py"], ["train.py"], 2),
        (["-m", "train.py"], ["train.py"], 2),
    ],
)
def test_what_is_sure(argv, arguments, processes):
    orig = [PYTHON, "-m", "torch.distributed.run", *argv[1:]]
    expected = expect(argv, orig, ENVIRONMENT, PYTHON)
    assert expected is not None
    assert expected == ((PYTHON, "-u", *arguments), processes)


@pytest.mark.parametrize(
    "argv",
    [
        ["torchrun", "--nnodes", "1:2", "train.py"],  # a value apart may be a script or a value
        ["torchrun", "--no-python", "train.sh"],
        ["torchrun", "--run-path", "train.py"],
        ["torchrun", "--nproc-per-node=gpu", "train.py"],
        ["torchrun", "--tee=3", "train.py"],
        ["torchrun", "--rdzv-backend=c10d", "train.py"],  # which never asks for what is prestarted
        ["torchrun", "--rdzv_backend=static", "train.py"],
        ["torchrun", "--rdzv_backend", "c10d", "train.py"],
        ["torchrun"],
        ["train.py"],
        ["-m", "pip"],
        [],
    ],
)
def test_what_is_not_sure_is_left(argv):
    assert expect(argv, [PYTHON, *argv], ENVIRONMENT, PYTHON) is None


@pytest.mark.parametrize("environment", [{}, {"PET_NPROC_PER_NODE": "auto"}, {**ENVIRONMENT, "PYTHON_EXEC": "/bin/py"}])
def test_nor_is_a_number_or_an_interpreter(environment):
    assert expect(["torchrun", "train.py"], [], environment, PYTHON) is None


@pytest.mark.parametrize(
    ("arguments", "can"),
    [
        ([PYTHON, "-u", "train.py"], True),
        ([PYTHON, "-u", "-m", "pkg.train"], True),
        ([PYTHON, "-u", "-S", "train.py"], False),
        ([PYTHON, "-u", "-c", "pass"], False),
        ([PYTHON, "train.py"], False),
        (["/bin/other", "-u", "train.py"], False),
        (["numactl", "--membind=0", PYTHON, "-u", "train.py"], False),
        ([PYTHON, "-u", "-m"], False),
    ],
)
def test_which_commands_can_be_prestarted(arguments, can):
    assert can_be_prestarted(arguments, PYTHON) is can


@pytest.mark.parametrize(
    ("argv", "environment", "also"),
    [
        (["torchrun", "train.py"], {}, set()),
        (["torchrun", "train.py"], ENVIRONMENT, {"TORCH_ELASTIC_WORKER_IDENTICAL"}),
        (["torchrun", "--nproc-per-node=2", "train.py"], ENVIRONMENT, set()),
        (["torchrun", "--nproc_per_node=2", "train.py"], ENVIRONMENT, set()),
    ],
)
def test_what_torch_says_to_each_process_of_a_round_is_there_from_the_start(argv, environment, also):
    """A module that lists the variables sees all of them."""
    guessed = guessed_environment(argv, environment, 1, 2, "")
    assert guessed.keys() & {"TORCH_ELASTIC_WORKER_IDENTICAL"} == also
    assert guessed.keys() > _OF_A_ROUND - {"TORCH_ELASTIC_WORKER_IDENTICAL"}
    assert (guessed["LOCAL_RANK"], guessed["LOCAL_WORLD_SIZE"]) == ("1", "2")


def test_the_number_of_threads_is_torchs_own_for_several_processes():
    assert guessed_environment([], {}, 0, 2, "")["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in guessed_environment([], {"OMP_NUM_THREADS": "3"}, 0, 2, "")
    assert "OMP_NUM_THREADS" not in guessed_environment([], {}, 0, 1, "")


def test_newer_versions_of_torch_say_which_signals_they_handle():
    name = "TORCHELASTIC_SIGNALS_TO_HANDLE"
    assert name not in guessed_environment([], {}, 0, 1, "os.environ['ANOTHER'] = '1'")
    assert name in guessed_environment([], {}, 0, 1, f"os.environ[{name!r}] = config.signals_to_handle")
