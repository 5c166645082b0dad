"""What torchrun will start, from its own command line."""

import pytest

from elasticjob_torch.warm.command import can_be_parked, expect

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
        ["torchrun", "--rdzv-backend=c10d", "train.py"],  # which never asks for what is parked
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
def test_which_commands_can_be_parked(arguments, can):
    assert can_be_parked(arguments, PYTHON) is can
