# SPDX-License-Identifier: Apache-2.0
"""How warm restart is switched on in torchrun's process, and how it goes on without where it cannot be."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from elasticjob_torch.warm import ahead, launch, process


class Handler:
    """As torch's `SubprocessHandler`."""

    def _popen(self, args, env):
        return subprocess.Popen(args, env=env)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[SimpleNamespace]:
    """Torch's module, in a torchrun of a job that wants warm restart."""
    caplog.set_level("INFO")
    made = SimpleNamespace(SubprocessHandler=Handler, Popen=subprocess.Popen)
    monkeypatch.setitem(sys.modules, launch._MODULE, made)
    for name, value in ((ahead.WANTED, "Enabled"), ("PET_RDZV_BACKEND", "elasticjob"), (ahead.GIVEN, "json")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PET_NPROC_PER_NODE", "1")
    monkeypatch.setattr(sys, "argv", ["torchrun", "train.py"])
    monkeypatch.setattr(ahead, "_startup", ahead._read_at_start())
    yield made
    ahead.forget()


def no_means(*_: object, **__: object) -> None:
    raise OSError("read-only file system")


def test_torchs_processes_are_prestarted_ones_from_then_on(torch: SimpleNamespace) -> None:
    pool = launch.switch_on(lambda _: True)
    assert pool is ahead.pool()
    assert torch.Popen.__func__ is launch.Launch.popen


@pytest.mark.parametrize(
    ("where", "what"), [(tempfile, "mkdtemp"), (process, "inherited")], ids=["no folder", "no process"]
)
def test_where_the_system_refuses_it_torch_starts_its_own(
    torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: object, what: str
) -> None:
    monkeypatch.setattr(where, what, no_means)
    assert launch.switch_on(lambda _: True) is None
    assert torch.Popen is subprocess.Popen
    assert caplog.messages == ["warm restart is off: read-only file system"]
    assert ahead._pool is None


@pytest.mark.parametrize("error", [ImportError("no module named subprocess_handler"), AttributeError("no Popen")])
def test_a_torch_that_starts_processes_elsewhere_goes_on_without_it(
    torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """As a later one may: torchrun must not end for it."""

    def fail(_: str) -> None:
        raise error

    monkeypatch.setattr(launch.importlib, "import_module", fail)
    ahead.pool()
    assert launch.switch_on(lambda _: True) is None
    assert caplog.messages == [f"warm restart is off: this torch starts its processes in another way ({error})"]
    assert ahead._pool is None, "what was prestarted before torch was imported is ended"
