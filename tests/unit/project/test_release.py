# SPDX-License-Identifier: Apache-2.0
"""What makes a release refuses one that does not agree with itself."""

import importlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHART = "charts/elasticjob/Chart.yaml"
PYPROJECT = '[project]\nname = "{name}"\nversion = "{version}"\ndependencies = [{dependencies}]\n'
IMAGES = "annotations:\n  artifacthub.io/images: |\n    - {name: sidecar, image: elasticjob/sidecar:0.2.0}\n"
CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-22\n\n- New.\n\n## [0.1.0] - 2026-01-01\n\n- First.\n"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What names the version, in a project whose release 0.2.0 is ready."""
    files = {
        "pyproject.toml": PYPROJECT.format(name="elasticjob", version="0.2.0", dependencies='"pydantic>=2"'),
        "cli/pyproject.toml": PYPROJECT.format(
            name="elasticjob-cli", version="0.2.0", dependencies='"click>=8", "elasticjob==0.2.0"'
        ),
        "core/elasticjob/__init__.py": '__version__ = "0.2.0"\n',
        CHART: 'name: elasticjob\nversion: 0.2.0\nappVersion: "0.2.0"\n' + IMAGES,
        "README.md": "",
        "docs/quick-start.md": "docker build --tag elasticjob/operator:0.2.0 .\n",
        "docs/installation.md": "docker push $REGISTRY/sidecar:0.2.0\n",
        "examples/jobset/jobset.yaml": "image: elasticjob/torch-plugin:0.2.0\n",
        "CHANGELOG.md": CHANGELOG,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    monkeypatch.syspath_prepend(ROOT / "hack" / "release")
    runpy.run_path(str(ROOT / "hack" / "release" / script), run_name="__main__")


def check(monkeypatch: pytest.MonkeyPatch, checkout: Path, *tag: str) -> None:
    run(monkeypatch, "check_version.py", *tag, "--root", str(checkout))


def test_files_of_this_project_name_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    check(monkeypatch, ROOT)


def test_a_release_that_agrees_passes(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    check(monkeypatch, checkout)
    check(monkeypatch, checkout, "v0.2.0")


@pytest.mark.parametrize(
    ("file", "told", "wrong", "says"),
    [
        (
            "core/elasticjob/__init__.py",
            '"0.2.0"',
            '"0.1.0"',
            "core/elasticjob/__init__.py: __version__ is 0.1.0; it must be 0.2.0",
        ),
        ("pyproject.toml", '"0.2.0"', '"0.3.0"', "pyproject.toml: project.version is 0.3.0; it must be 0.2.0"),
        (
            "cli/pyproject.toml",
            'version = "0.2.0"',
            'version = "0.1.0"',
            "cli/pyproject.toml: project.version is 0.1.0",
        ),
        ("cli/pyproject.toml", "==0.2.0", "==0.1.0", "project.dependencies, 'elasticjob==0.1.0' is 0.1.0"),
        (CHART, "version: 0.2.0", "version: 0.1.0", "Chart.yaml: version is 0.1.0; it must be 0.2.0, as the tag says"),
        (CHART, '"0.2.0"', '"0.1.0"', "Chart.yaml: appVersion is 0.1.0"),
        (CHART, "sidecar:0.2.0", "sidecar:0.1.0", "Chart.yaml: artifacthub.io/images, sidecar is 0.1.0"),
        ("docs/installation.md", "0.2.0", "0.1.0", "docs/installation.md: the image sidecar is 0.1.0"),
        ("docs/quick-start.md", "0.2.0", "0.1.0", "docs/quick-start.md: the image operator is 0.1.0"),
        (
            "examples/jobset/jobset.yaml",
            "0.2.0",
            "0.1.0",
            "examples/jobset/jobset.yaml: the image torch-plugin is 0.1.0",
        ),
        ("CHANGELOG.md", "## [0.2.0] - 2026-11-22", "## [0.2]", r"no section '## [0.2.0] - YYYY-MM-DD'"),
        ("CHANGELOG.md", "[0.2.0] - 2026-11-22", "[0.2.0]", "must be '## [0.2.0] - YYYY-MM-DD'"),
        ("CHANGELOG.md", "- New.", "", "[0.2.0] is empty; say what changed"),
        ("CHANGELOG.md", "[Unreleased]\n", "[Unreleased]\n\n- Forgotten.\n", "[Unreleased] is not empty"),
        (
            "CHANGELOG.md",
            "## [0.2.0]",
            "## [0.3.0] - 2026-12-01\n\n- Later.\n\n## [0.2.0]",
            "newest version is [0.3.0]",
        ),
    ],
)
def test_what_does_not_agree_with_the_tag_is_named(
    monkeypatch: pytest.MonkeyPatch, checkout: Path, file: str, told: str, wrong: str, says: str
) -> None:
    text = (checkout / file).read_text()
    assert told in text
    (checkout / file).write_text(text.replace(told, wrong, 1))
    with pytest.raises(SystemExit, match=re.escape(says)):
        check(monkeypatch, checkout, "v0.2.0")


@pytest.mark.parametrize("tag", ["0.2.0", "v0.2", "v0.2.0-rc.1", "v0.2.0\n"])
def test_a_tag_of_another_shape_is_refused(monkeypatch: pytest.MonkeyPatch, checkout: Path, tag: str) -> None:
    with pytest.raises(SystemExit, match=re.escape("the tag must be vX.Y.Z")):
        check(monkeypatch, checkout, tag)


def test_files_that_disagree_are_found_without_a_tag(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    chart = checkout / CHART
    chart.write_text(chart.read_text().replace('"0.2.0"', '"0.1.0"'))
    with pytest.raises(SystemExit, match=re.escape("appVersion is 0.1.0; it must be 0.2.0, as pyproject.toml says")):
        check(monkeypatch, checkout)


def test_notes_are_the_section_of_the_version_and_no_more(
    monkeypatch: pytest.MonkeyPatch, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = checkout / "sizes"
    sizes.write_text("| image | MB |\n")
    log = str(checkout / "CHANGELOG.md")
    run(monkeypatch, "notes.py", "0.2.0", "--registry", "r.io/me", "--sizes", str(sizes), "--changelog", log)
    told = capsys.readouterr().out
    assert "- New." in told
    assert "- First." not in told
    assert "oci://r.io/me/charts/elasticjob --version 0.2.0" in told
    assert told.endswith("| image | MB |\n")
    with pytest.raises(SystemExit, match=re.escape("no section '## [0.4.0]")):
        run(monkeypatch, "notes.py", "0.4.0", "--registry", "r.io/me", "--changelog", log)


# an engine with images of 1 MB, but for the sidecar's; asked for any other it fails as docker does
DOCKER = """#!/bin/sh
case "$1 $2" in
  "create debian"* | "create "*operator* | "create "*torch-plugin*) echo small ;;
  "create there/"*sidecar*) echo sidecar ;;
  "export small") head -c 1000000 /dev/zero ;;
  "export sidecar") head -c "$SIDECAR_BYTES" /dev/zero ;;
  "rm "*) ;;
  *) echo "no such image: $2" >&2; exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("registry", "megabytes", "code", "says"),
    [
        ("there", 100, 0, "| 100 | 99 |"),
        ("there", 100, 0, "torch-plugin:0.1.0` | 1 | 1 |"),
        ("there", 121, 1, "error: the sidecar is 120 MB beyond its base; it must be below 120"),
        ("nowhere", 100, 1, "no such image: nowhere/elasticjob/sidecar"),
    ],
)
def test_a_sidecar_that_is_too_large_or_not_there_is_found(
    tmp_path: Path, registry: str, megabytes: int, code: int, says: str
) -> None:
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    environment = os.environ | {"ELASTICJOB_CACHE": str(tmp_path), "SIDECAR_BYTES": str(megabytes * 1_000_000)}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    command = [ROOT / "hack" / "release" / "image_sizes.sh", registry]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert says in done.stdout + done.stderr


def test_a_distribution_without_wheel_or_without_trial_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT / "hack" / "release")
    try_wheels = importlib.import_module("try_wheels")
    monkeypatch.setattr(try_wheels, "projects", lambda: {"new": {"name": "new", "version": "0.1.0"}})
    with pytest.raises(try_wheels.TrialError, match="has no wheel of new"):
        try_wheels.try_all(tmp_path)
    (tmp_path / "new-0.1.0-py3-none-any.whl").touch()
    with pytest.raises(try_wheels.TrialError, match="nothing tries new"):
        try_wheels.try_all(tmp_path)
