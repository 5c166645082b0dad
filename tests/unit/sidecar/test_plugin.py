# SPDX-License-Identifier: Apache-2.0
"""The plug-in is laid out for the trainer once in a pod's life, and told of when it is whole."""

from pathlib import Path

import pytest

from elasticjob_sidecar import plugin


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "__init__.py").write_text("first = 1")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


def test_it_is_whole_when_it_says_so(source: Path, folder: Path) -> None:
    plugin.lay_out(folder, source)
    assert (folder / plugin.COMPLETE).exists()
    assert (folder / "package" / "__init__.py").read_text() == "first = 1"


def test_the_folder_itself_stays_as_it_is(source: Path, folder: Path) -> None:
    """It is the kubelet's, and for another user to write into, not to change."""
    folder.chmod(0o777)
    source.chmod(0o755)
    plugin.lay_out(folder, source)
    assert folder.stat().st_mode & 0o777 == 0o777


def test_a_trainer_that_reads_it_is_not_disturbed_by_a_sidecar_that_starts_again(source: Path, folder: Path) -> None:
    plugin.lay_out(folder, source)
    (source / "package" / "__init__.py").write_text("second = 2")
    plugin.lay_out(folder, source)
    assert (folder / "package" / "__init__.py").read_text() == "first = 1"


def test_one_that_was_cut_off_is_laid_out_again(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*args: object, **kwargs: object) -> None:
        (folder / "package").mkdir()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(plugin.shutil, "copytree", cut_off)
        with pytest.raises(OSError, match="No space"):
            plugin.lay_out(folder, source)
    assert not (folder / plugin.COMPLETE).exists()
    plugin.lay_out(folder, source)
    assert (folder / "package" / "__init__.py").exists()
