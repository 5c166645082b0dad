# SPDX-License-Identifier: Apache-2.0
"""krew's manifest of the command line tool: made of the release's archives, and by krew's rules."""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
LAUNCHER = ROOT / "hack" / "release" / "kubectl-elasticjob"
PLATFORMS = {("linux", "amd64"), ("linux", "arm64"), ("darwin", "amd64"), ("darwin", "arm64")}


@pytest.fixture
def krew(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "hack" / "release")
    return __import__("krew")


def pack(file: Path, *names: str, mode: int = 0o755, link: str = "") -> None:
    """An archive of empty files, and of a link with that name."""
    with tarfile.open(file, "w:gz") as archive:
        for name in (*names, *filter(None, [link])):
            member = tarfile.TarInfo(f"./{name}")
            member.mode = mode
            if name == link:
                member.type, member.linkname = tarfile.SYMTYPE, "LICENSE"
            archive.addfile(member, io.BytesIO(b""))


@pytest.fixture
def made(krew: ModuleType, tmp_path: Path) -> dict[str, Any]:
    for os_name, arch in PLATFORMS:
        pack(tmp_path / krew.archive_name("0.2.0", os_name, arch), "kubectl-elasticjob", "LICENSE", f"{os_name}-{arch}")
    found: dict[str, Any] = krew.manifest("0.2.0", tmp_path, "me")
    return found


def test_a_manifest_of_a_release_has_no_mistakes(krew: ModuleType, made: dict[str, Any], tmp_path: Path) -> None:
    assert list(krew.mistakes(made, tmp_path)) == []
    assert made["metadata"]["name"] == "elasticjob"
    there = set()
    for platform in made["spec"]["platforms"]:
        labels = platform["selector"]["matchLabels"]
        there.add((labels["os"], labels["arch"]))
        name = f"kubectl-elasticjob_v0.2.0_{labels['os']}_{labels['arch']}.tar.gz"
        assert platform["uri"] == f"https://github.com/me/elasticjob/releases/download/v0.2.0/{name}"
        assert platform["sha256"] == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert there == PLATFORMS


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("apiVersion",), "v1", "apiVersion and kind must be krew.googlecontainertools.github.com/v1alpha2"),
        (("kind",), "Krew", "apiVersion and kind must be"),
        (("metadata", "name"), "ej", "metadata.name must be elasticjob"),
        (("metadata", "labels"), {}, "metadata has a field labels that krew does not know"),
        (("spec", "version"), "0.2.0", "spec.version must be vX.Y.Z"),
        (("spec", "shortDescription"), "a\nb", "spec.shortDescription must be one line"),
        (("spec", "shortDescription"), "a" * 51, "spec.shortDescription must be one line of at most 50 letters"),
        (("spec", "homepage"), "github.com", "spec.homepage must be an https address"),
        (("spec", "homePage"), "https://a", "spec has a field homePage"),
        (("spec", "platforms"), [], "spec.platforms is empty"),
        (("spec", "platforms", 1, "selector"), {}, "spec.platforms[1]: selector.matchLabels must have os and arch"),
        (("spec", "platforms", 0, "selector", "matchLabels", "libc"), "musl", "and nothing else"),
        (("spec", "platforms", 0, "files"), [], "files must have entries, or not be there"),
        (("spec", "platforms", 0, "url"), "https://a", "krew does not know the field url"),
        (("spec", "platforms", 0, "uri"), "http://a/b.tar.gz", "uri must be the https address of a .tar.gz or .zip"),
        (("spec", "platforms", 0, "uri"), "https://a/b.tar.gz", "there is no b.tar.gz in "),
        (("spec", "platforms", 0, "sha256"), "A" * 64, "sha256 must have 64 digits from 0 to f"),
        (("spec", "platforms", 0, "sha256"), "a" * 64, "sha256 is not that of kubectl-elasticjob_v0.2.0_linux_amd64"),
        (("spec", "platforms", 0, "bin"), "elasticjob", "has no program elasticjob"),
        (("spec", "platforms", 0, "bin"), "", "has no program of that name"),
    ],
    ids=lambda one: ".".join(map(str, one)) if isinstance(one, tuple) else "",
)
def test_what_krew_would_not_take_is_named(
    krew: ModuleType, made: dict[str, Any], tmp_path: Path, path: tuple[Any, ...], value: Any, sentence: str
) -> None:
    *before, last = path
    place: Any = made
    for name in before:
        place = place[name]
    place[last] = value
    assert any(sentence in one for one in krew.mistakes(made, tmp_path))


@pytest.mark.parametrize(
    ("names", "given", "sentence"),
    [
        (["LICENSE"], {}, "has no program kubectl-elasticjob"),
        (["LICENSE", "kubectl-elasticjob"], {"mode": 0o644}, "has no program kubectl-elasticjob"),
        (["kubectl-elasticjob"], {}, "has no LICENSE"),
        (["LICENSE", "kubectl-elasticjob"], {"link": "python"}, "has links, which krew does not unpack: python"),
    ],
    ids=["no program", "not executable", "no licence", "a link"],
)
def test_an_archive_that_krew_cannot_use_is_named(
    krew: ModuleType, made: dict[str, Any], tmp_path: Path, names: list[str], given: dict[str, Any], sentence: str
) -> None:
    pack(tmp_path / krew.archive_name("0.2.0", "linux", "amd64"), *names, **given)
    again = krew.manifest("0.2.0", tmp_path, "me")
    assert [one for one in krew.mistakes(again, tmp_path) if sentence in one]


def test_an_archive_that_is_missing_is_named(krew: ModuleType, made: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(krew.KrewError, match=r"there is no .*kubectl-elasticjob_v0\.3\.0_linux_amd64\.tar\.gz"):
        krew.manifest("0.3.0", tmp_path, "me")


def test_the_program_prints_the_manifest(
    krew: ModuleType, made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["krew.py", "0.2.0", str(tmp_path), "--owner", "me"])
    krew.main()
    assert yaml.safe_load(capsys.readouterr().out) == made


def test_the_archives_hold_what_the_distributions_need() -> None:
    def needs(file: str) -> set[str]:
        return set(tomllib.loads((ROOT / file).read_text())["project"]["dependencies"])

    wanted = {one for one in needs("pyproject.toml") | needs("cli/pyproject.toml") if not one.startswith("elasticjob")}
    lines = (ROOT / "locks" / "cli.in").read_text().splitlines()
    assert {line for line in lines if not line.startswith("#")} == wanted


def test_the_archives_are_for_each_python_that_the_launcher_takes() -> None:
    pythons = re.findall(r"python(3\.\d+)", LAUNCHER.read_text())
    made = re.search(r"for with in (.*); do", (ROOT / "hack" / "release" / "krew.sh").read_text())
    assert made
    assert sorted(made[1].split()) == sorted(pythons)


def unpacked(folder: Path) -> Path:
    """The launcher beside packages for this Python alone, which print what they were called with."""
    lib = folder / "lib" / f"{sys.version_info[0]}.{sys.version_info[1]}"
    lib.mkdir(parents=True)
    (lib / "__main__.py").write_text(
        "import os, sys; print(sys.argv[1:], sys.flags.isolated, os.environ['PYTHONPATH'])"
    )
    (folder / LAUNCHER.name).write_bytes(LAUNCHER.read_bytes())
    (folder / LAUNCHER.name).chmod(0o755)
    (folder / "bin").mkdir()
    for name in ("readlink", "dirname", "sh"):
        (folder / "bin" / name).symlink_to(shutil.which(name) or name)
    return folder


def called(folder: Path) -> "subprocess.CompletedProcess[str]":
    """As krew calls it: by a link, and with the user's own environment."""
    (folder / "bin" / "kubectl-elasticjob").symlink_to(folder / LAUNCHER.name)
    environment = os.environ | {"PATH": str(folder / "bin"), "PYTHONPATH": "mine"}
    words = [str(folder / "bin" / "kubectl-elasticjob"), "why", "a b"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def test_the_launcher_finds_a_python_that_its_archive_has_packages_for(tmp_path: Path) -> None:
    """What it starts, such as a login program, inherits no path of its own."""
    (unpacked(tmp_path) / "bin" / "python3").symlink_to(sys.executable)
    done = called(tmp_path)
    assert (done.returncode, done.stdout) == (0, "['why', 'a b'] 1 mine\n")


def test_the_launcher_says_which_pythons_would_do(tmp_path: Path) -> None:
    done = called(unpacked(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: kubectl elasticjob needs Python 3.11, 3.12, 3.13 or 3.14 on PATH, and found none\n"
