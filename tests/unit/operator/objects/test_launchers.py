# SPDX-License-Identifier: Apache-2.0
"""The trainer's command: what is refused with a sentence, what is let pass, and what is hinted at."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob_operator.objects.launchers import hint, problems


def found(*command: str, **container: Any) -> str:
    return "; ".join(problems({"command": list(command), **container}))


def in_shell(script: str) -> str:
    return found("bash", "-c", script)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("torchrun --standalone train.py", "remove --standalone"),
        ("torchrun --rdzv-backend=c10d train.py", "remove --rdzv-backend"),
        ("torchrun --rdzv_backend c10d train.py", "remove --rdzv-backend"),
        ("torchrun --nnodes 2 --rdzv-endpoint=head:29500 train.py", "remove --rdzv-endpoint"),
        ("torchrun --nnodes 2 --rdzv_endpoint $HEAD:29500 train.py", "remove --rdzv-endpoint"),
        ("torchrun --rdzv-id=train train.py", "remove --rdzv-id from"),
        ("torchrun --rdzv_id 17 --rdzv-backend elasticjob train.py", "remove --rdzv-id from"),
        (
            "torchrun --standalone --rdzv-id=1 --rdzv-backend=c10d --rdzv-endpoint=head:29500 train.py",
            "remove --standalone, --rdzv-backend, --rdzv-endpoint, --rdzv-id from the trainer's command: they pass",
        ),
        ("/opt/conda/bin/torchrun --standalone -m train", "remove --standalone"),
        ("python -m torch.distributed.run --rdzv-backend static train.py", "remove --rdzv-backend"),
        ("python3.12 -u -m torch.distributed.launch --standalone train.py", "remove --standalone"),
        ("python /usr/bin/torchrun --standalone train.py", "remove --standalone"),
        ("env A=b torchrun --standalone train.py", "remove --standalone"),
        ("tini -- torchrun --standalone train.py", "remove --standalone"),
        ("timeout -k 5 3600 torchrun --standalone train.py", "remove --standalone"),
        ("uv run torchrun --standalone train.py", "remove --standalone"),
        ("conda run -n deepspeed torchrun --standalone train.py", "remove --standalone"),
        ("accelerate launch train.py", "needs --rdzv_backend elasticjob"),
        ("accelerate launch --multi_gpu --rdzv_backend c10d train.py", "its own c10d one"),
        ("accelerate-launch train.py", "its own static one"),
        ("python -m accelerate.commands.launch train.py", "its own static one"),
        ("accelerate launch --cpu --rdzv_backend=elasticjob train.py", "remove --cpu"),
        ("accelerate launch --rdzv-backend=elasticjob --num-machines 2 train.py", "remove --num_machines"),
        ("accelerate-launch --rdzv-backend=elasticjob --num_machines=2 --same_network x.py", "remove --num_machines"),
        ("accelerate-launch --rdzv-backend=elasticjob --multi_gpu --num_processes=1 x.py", "remove --num_processes"),
        ("accelerate-launch --multi-gpu --num-processes 0 --rdzv_backend elasticjob -m x", "remove --num_processes"),
        ("deepspeed --num_gpus 8 train.py", "starts deepspeed, which knows nothing of elastic rendezvous"),
        ("python -m deepspeed.launcher.runner train.py", "starts deepspeed"),
        ("horovodrun -np 4 python train.py", "starts horovodrun"),
        ("mpirun -np 4 python train.py", "starts mpirun"),
        ("composer -n 8 train.py", "starts composer"),
        ("ray job submit -- python train.py", "starts ray"),
        ("ray start --head --block", "starts ray"),
    ],
)
def test_what_cannot_work_is_refused_in_words_and_in_a_shell(command: str, words: str) -> None:
    assert words in found(*command.split())
    assert words in in_shell(f"set -e\ncd /app && {command} 2>&1 | tee log")


@pytest.mark.parametrize(
    "command",
    [
        "torchrun train.py",
        "torchrun --nnodes=2 --nproc-per-node 8 train.py",
        "torchrun --rdzv-backend=elasticjob train.py",
        "torchrun --rdzv_backend elasticjob --rdzv_endpoint 127.0.0.1:27600 train.py",
        "torchrun --rdzv-backend $BACKEND --rdzv-endpoint $PET_RDZV_ENDPOINT train.py",
        "torchrun --rdzv-id=$PET_RDZV_ID train.py",
        "torchrun train.py --standalone --rdzv-backend c10d",
        "torchrun --tee 3 -m train --standalone",
        "torchrun -t3 --no_python train.sh --standalone",
        "python -m torch.distributed.run train.py",
        "accelerate launch --multi_gpu --num_processes=2 --rdzv_backend=elasticjob train.py",
        "accelerate launch --rdzv-backend elasticjob --num_machines 1 train.py --cpu",
        "accelerate launch $OPTIONS train.py",
        "accelerate launch --multi_gpu --num_processes=$GPUS --rdzv_backend=elasticjob train.py",
        "accelerate launch --use_fsdp --num_processes=1 --rdzv_backend=elasticjob train.py",
        "accelerate launch --multi_gpu --rdzv_backend=elasticjob train.py --num_processes 1",
        "accelerate env",
        "pip install deepspeed accelerate ray",
        "python launcher.py torchrun --standalone",
        "python my_launcher.py --launcher deepspeed",
        "python deepspeed_train.py",
        "./run.sh --standalone",
        "bash run.sh --rdzv-backend=c10d",
        "echo torchrun --standalone",
        "mpirun -np 1 torchrun train.py",
    ],
)
def test_what_may_work_is_let_pass(command: str) -> None:
    assert found(*command.split()) == ""
    assert in_shell(command) == ""


@pytest.mark.parametrize(
    "script",
    [
        'if [ -n "$DEBUG" ]; then torchrun --standalone train.py; else exec torchrun train.py; fi',
        "torchrun --standalone prepare.py && torchrun train.py",
        "torchrun --nproc-per-node=$(nproc --standalone) train.py",
        "cat > run.sh <<EOF\ntorchrun --standalone train.py\nEOF\nbash run.sh",
        "# torchrun --standalone\ntorchrun train.py  # don't: torchrun --standalone",
        "echo 'torchrun --standalone; torchrun --standalone'\ntorchrun train.py",
        "ray start --head && python train.py",
        "deepspeed --help; torchrun train.py",
        "torchrun train.py 'an open quotation --standalone",
        "",
    ],
)
def test_a_script_is_read_as_a_shell_reads_it(script: str) -> None:
    assert in_shell(script) == ""


@pytest.mark.parametrize(
    "shell", [["sh", "-c"], ["/bin/bash", "-lc"], ["bash", "-euo", "pipefail", "-c"], ["tini", "--", "sh", "-ec"]]
)
def test_whatever_the_shells_options(shell: list[str]) -> None:
    assert "remove --rdzv-backend" in found(*shell, "A=b torchrun \\\n  --rdzv-backend=c10d train.py")


def test_a_shell_in_a_shell() -> None:
    assert "remove --standalone" in in_shell("""bash -c "torchrun --standalone train.py" """)


def test_options_for_the_images_own_program() -> None:
    assert "remove --rdzv-backend" in found(args=["--rdzv-backend", "c10d", "train.py"])
    assert found(args=["--rdzv-backend", "elasticjob", "train.py"]) == ""
    assert found(args=["--standalone"]) == ""
    assert "remove --standalone" in found(args=["torchrun", "--standalone", "train.py"])


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["python", "train.py"], "`python train.py`: it must be torchrun, as in `torchrun train.py`"),
        (["python3", "-u", "/app/train.py", "--epochs=3"], "`python /app/train.py`"),
        (["python", "-m", "project.train"], "as in `torchrun -m project.train`"),
        (["python", "-c", "import torch"], "`python -c`: it must be torchrun"),
        (["bash", "-c", "cd /app; python train.py 2>&1 | tee log"], "`python train.py`"),
    ],
)
def test_plain_python_is_hinted_at_and_not_refused(command: list[str], sentence: str) -> None:
    assert found(*command) == ""
    assert sentence in (hint({"command": command}) or "")


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "train.py"],
        ["python", "-m", "torch.distributed.run", "train.py"],
        ["python", "/usr/bin/torchrun", "train.py"],
        ["python", "-c", "from torch.distributed.run import main; main()"],
        ["bash", "-c", "python $(which torchrun) train.py"],
        ["bash", "-c", "python prepare.py && ./train.sh"],
        ["python", "launch.py", "--with", "torchrun"],
        ["accelerate", "launch", "train.py"],
        ["./train"],
        [],
    ],
)
def test_what_may_start_torchrun_is_not_hinted_at(command: list[str]) -> None:
    assert hint({"command": command}) is None


@given(
    st.lists(st.text() | st.sampled_from(["bash", "-c", "torchrun --standalone", "env", "-n", "<<", "$(", '"', "\n"]))
)
def test_no_command_is_too_odd_to_be_read(command: list[str]) -> None:
    list(problems({"command": command}))
    hint({"args": command})


@pytest.mark.parametrize(
    "command",
    [
        ["time"] * 500_000,
        ["bash", "-c", "\n" * 1_000_000],
        ["bash", "-c", "$(" * 300_000],
        ["torchrun", *["-x"] * 500_000],
    ],
    ids=["wrappers", "lines", "substitutions", "options"],
)
def test_a_command_without_an_end_is_let_pass(command: list[str]) -> None:
    """Else one user's template would keep the operator from all others' jobs."""
    began = time.process_time()
    for container in ({"command": command}, {"args": command}, {"args": command[1:]}):
        assert list(problems(container)) == []
        assert hint(container) is None
    assert time.process_time() - began < 5
