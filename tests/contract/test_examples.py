# SPDX-License-Identifier: Apache-2.0
"""examples/digits: what a worker saves that has missed the end of its round."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples/digits/train.py"
WITH_SKLEARN = f"torch=={torch.__version__.partition('+')[0]} " in (ROOT / "locks/digits.txt").read_text()


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script, as the only worker of its group."""
    if not WITH_SKLEARN:
        pytest.skip("only the newest torch has scikit-learn beside it")
    spec = importlib.util.spec_from_file_location("digits_train", DIGITS)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "CHECKPOINTS", tmp_path)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield script
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("saves", "goes_on_from"),
    [
        pytest.param([(4, 17), (5, 18), (4, 18)], (5, 18), id="the same epoch"),
        pytest.param([(4, 17), (5, 18), (5, 19), (4, 18)], (5, 19), id="an older epoch"),
        pytest.param([(4, 17), (4, 18)], (4, 18), id="before the next round has saved"),
        pytest.param([(9, 17), (1, 18)], (1, 18), id="a new job of the same directory"),
    ],
)
def test_a_late_worker_puts_no_training_back(
    train: ModuleType, saves: list[tuple[int, int]], goes_on_from: tuple[int, int]
) -> None:
    model = train.build_model()
    optimizer = train.torch.optim.SGD(model.parameters(), lr=0.1)
    for number, epoch in saves:
        train.ROUND = number
        train.torch.nn.init.constant_(model[0].bias, number)
        train.save_checkpoint(model, optimizer, epoch)
    assert train.load_checkpoint(model, optimizer) == goes_on_from[1]
    assert set(model[0].bias.tolist()) == {goes_on_from[0]}
    assert len(list(train.CHECKPOINTS.iterdir())) == 1, "older ones are deleted"
