"""What makes a release refuses one that does not agree with itself."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHART = "charts/elasticjob/Chart.yaml"
PYPROJECT = '[project]\nname = "{name}"\nversion = "{version}"\ndependencies = [{dependencies}]\n'
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
        CHART: 'name: elasticjob\nversion: 0.2.0\nappVersion: "0.2.0"\n',
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
