"""The workflows call what there is, and run nothing that can change behind their back."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs(file: Path) -> Mapping[str, Any]:
    return yaml.safe_load(file.read_text())["jobs"]


def commands(file: Path) -> Iterator[str]:
    for job in jobs(file).values():
        yield from (step["run"] for step in job.get("steps", []) if "run" in step)


def made(file: Path) -> set[str]:
    """The targets of `make` that a workflow calls."""
    calls = re.findall(r"\bmake ((?:[a-z][a-z0-9-]* ?)+)", "\n".join(commands(file)))
    return {target for call in calls for target in call.split()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_actions_are_pinned_to_commits_with_their_tag(file: Path) -> None:
    uses = re.findall(r"uses: (?!\./)(.*)", file.read_text())
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_an_action_is_pinned_once() -> None:
    pins = {tuple(action.split("@")) for file in FILES for action in re.findall(r"uses: (?!\./)(.*)", file.read_text())}
    assert len({name for name, _ in pins}) == len(pins)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_targets_and_scripts_are_there(file: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert made(file) <= targets
    for script in re.findall(r"hack/[\w./-]+", "\n".join(commands(file))):
        assert (ROOT / script).exists(), script


def test_ci_runs_every_part_of_make_test() -> None:
    parts = re.findall(r"^(?:beside|alone) ([a-z0-9 -]+)$", (ROOT / "hack" / "test.sh").read_text(), re.M)
    assert {part for line in parts for part in line.split()} <= made(ROOT / ".github" / "workflows" / "ci.yml")


def test_every_job_has_an_end_and_only_the_rights_that_it_names() -> None:
    for file in FILES:
        workflow = yaml.safe_load(file.read_text())
        assert workflow["permissions"] in ({}, {"contents": "read"}), file.name
        for name, job in workflow["jobs"].items():
            assert "uses" in job or job["timeout-minutes"] <= 120, name


def test_every_distribution_is_published() -> None:
    release = jobs(ROOT / ".github" / "workflows" / "release.yml")
    files = [ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml")]
    names = {tomllib.loads(file.read_text())["project"]["name"] for file in files}
    assert names <= set(release["pypi"]["strategy"]["matrix"]["distribution"])


def test_a_release_waits_for_the_tests_and_ends_with_what_cannot_be_taken_back() -> None:
    release = jobs(ROOT / ".github" / "workflows" / "release.yml")

    def before(name: str) -> set[str]:
        needs = release[name].get("needs", [])
        direct = {needs} if isinstance(needs, str) else set(needs)
        return direct.union(*(before(one) for one in direct))

    assert before("images") >= {"version", "test"}
    assert before("pypi") == {"version", "test", "images", "chart", "wheels"}
    assert before("release") == set(release) - {"release"}
