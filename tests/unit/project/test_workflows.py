# SPDX-License-Identifier: Apache-2.0
"""The workflows call what there is, cannot pass over a failure, and run nothing that can change behind their back."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.broken_checkout import files

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = ROOT / ".github" / "workflows"
FILES = sorted(WORKFLOWS.iterdir())
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
# a call of `make` is one command, of targets and perhaps a variable
MAKE = re.compile(r"make((?: [a-z][a-z0-9-]*)+)(?: [A-Z]+=\S+)?")
COMPILE = {"api", "e2e", "guards", "lint"}  # with the modules of hack/cluster


def jobs(file: Path) -> Mapping[str, Any]:
    return yaml.safe_load(file.read_text())["jobs"]


def commands(workflow: Mapping[Any, Any]) -> list[str]:
    """Those of all steps, each of one or several lines."""
    return [command for job in workflow["jobs"].values() for command in commands_of(job)]


def commands_of(job: Mapping[str, Any]) -> list[str]:
    return [step["run"] for step in job.get("steps", []) if "run" in step]


def made(commands: list[str]) -> set[str]:
    """The targets of `make` that they call."""
    return {target for command in commands if (call := MAKE.fullmatch(command)) for target in call[1].split()}


def mistakes(text: str) -> Iterator[str]:
    """What is wrong with a workflow; actionlint finds what is wrong with any."""
    workflow = yaml.safe_load(text)
    for action in re.findall(r"uses: (?!\./)(.*)", text):
        if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action):
            yield f"{action} is not pinned to a commit with its tag"
    if workflow["permissions"] not in ({}, {"contents": "read"}):
        yield "permissions of all jobs"
    for name, job in workflow["jobs"].items():
        yield from _mistakes_of_job(name, job)
    if workflow.get("defaults") != {"run": {"shell": "bash"}} or re.search(r"^ {5,}-? *shell:", text, re.M):
        yield "only the default shell: bash has pipefail"
    if "continue-on-error" in text:
        yield "continue-on-error"
    for command in commands(workflow):
        yield from _mistakes_of(command)
    for target in sorted(made(commands(workflow)) - TARGETS):
        yield f"there is no make {target}"
    for pattern in (workflow[True].get("push") or {}).get("paths", []):
        if not any(ROOT.glob(pattern)):
            yield f"no file is {pattern}"


def go_of(job: Mapping[str, Any]) -> str | None:
    """The Go that a job sets up; it fetches no other. None if it has the runner's."""
    found = [step["with"]["go-version-file"] for step in job["steps"] if "/setup-go@" in step.get("uses", "")]
    return asked_for(ROOT / found[0]) if found else None


def newest_go() -> str:
    """The newest that a module of hack/cluster asks for."""
    asked = [asked_for(file) for file in ROOT.glob("hack/cluster/**/go.mod")]
    return max(asked, key=lambda version: [int(number) for number in version.split(".")])


def asked_for(module: Path) -> str:
    (version,) = re.findall(r"^go (\S+)$", module.read_text(), re.M)
    return str(version)


def _mistakes_of_job(name: str, job: Mapping[str, Any]) -> Iterator[str]:
    if "uses" not in job and job.get("timeout-minutes", 360) > 120:
        yield f"{name} has no timeout-minutes"
    if made(commands_of(job)) & COMPILE and go_of(job) != newest_go():
        yield f"{name} has Go {go_of(job)}, and a module asks for {newest_go()}"


def _mistakes_of(command: str) -> Iterator[str]:
    if slip := re.search(r"\|\| *(?:true|:|exit 0|echo)|set \+e|set \+o", command):
        yield f"'{slip[0]}' passes over a failure"
    if re.search(r"\bmake\b", command) and not MAKE.fullmatch(command):
        yield f"'{command}' is more than a call of make"
    for script in re.findall(r"hack/[\w./-]+", command):
        if not os.access(ROOT / script, os.R_OK if script.endswith(".py") else os.X_OK):
            yield f"there is no {script}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_there_are_no_mistakes(file: Path) -> None:
    assert file.suffix == ".yml", "the other tests read files of this name"
    assert list(mistakes(file.read_text())) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("ci.yml", "checkout@08c6", "checkout@main # 08c6", "is not pinned to a commit"),
        ("ci.yml", "  contents: read\n", "  contents: write\n", "permissions of all jobs"),
        ("ci.yml", "    timeout-minutes: 30\n", "", "lint has no timeout-minutes"),
        ("release.yml", "    shell: bash", "    shell: sh", "pipefail"),
        (
            "release.yml",
            "      - run: make release-check",
            "      - shell: sh\n        run: make release-check",
            "pipefail",
        ),
        ("ci.yml", "node-image/containerd/go.mod", "programs/go.mod", "lint has Go 1.25.0, and a module asks"),
        ("ci.yml", "- run: make lint", "- continue-on-error: true\n        run: make lint", "continue-on-error"),
        ("ci.yml", "make lint", "make lint || true", "'|| true' passes over a failure"),
        ("ci.yml", "make lint", "make lint | tee said", "'make lint | tee said' is more than a call of make"),
        ("ci.yml", "make lint", "make lints", "there is no make lints"),
        ("release.yml", "hack/release/chart.sh", "hack/release/charts.sh", "there is no hack/release/charts.sh"),
        ("release.yml", "hack/release/notes.py", "hack/notes.py", "there is no hack/notes.py"),
        ("site.yml", "hack/docs*.py", "hack/site*.py", "no file is hack/site*.py"),
    ],
)
def test_a_mistake_is_found(file: str, old: str, new: str, says: str) -> None:
    text = (WORKFLOWS / file).read_text()
    assert old in text
    assert says in "\n".join(mistakes(text.replace(old, new, 1)))


def test_an_action_is_pinned_once() -> None:
    pins = {tuple(action.split("@")) for file in FILES for action in re.findall(r"uses: (?!\./)(.*)", file.read_text())}
    assert len({name for name, _ in pins}) == len(pins) > 5


def test_ci_runs_every_part_of_make_test_and_the_checks_of_the_checks() -> None:
    parts = re.findall(r"^(?:waits|computes)=\(([a-z0-9 +-]+)\)$", (ROOT / "hack" / "test.sh").read_text(), re.M)
    named = {part for line in parts for part in line.replace("+", " ").split()}
    assert {"lint", "unit", "e2e"} <= named, "hack/test.sh names its parts in another way"
    assert named | {"guards"} <= made(commands(yaml.safe_load((WORKFLOWS / "ci.yml").read_text())))


def test_every_distribution_is_published() -> None:
    release = jobs(WORKFLOWS / "release.yml")
    files = [ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml")]
    names = {tomllib.loads(file.read_text())["project"]["name"] for file in files}
    assert names == set(release["pypi"]["strategy"]["matrix"]["distribution"])


def test_a_release_waits_for_the_tests_and_ends_with_what_cannot_be_taken_back() -> None:
    release = jobs(WORKFLOWS / "release.yml")

    def before(name: str) -> set[str]:
        needs = release[name].get("needs", [])
        direct = {needs} if isinstance(needs, str) else set(needs)
        return direct.union(*(before(one) for one in direct))

    tests = {"test", "kubernetes-api", "kubernetes-cluster"}
    assert before("images") == {"version", *tests}
    assert before("pypi") == {"version", *tests, "images", "chart", "wheels"}
    assert before("release") == set(release) - {"release", "site"}
    assert before("site") == set(release) - {"site"}


def test_all_that_is_pinned_is_scanned_and_brought_up_to_date() -> None:
    scan = (WORKFLOWS / "scan.yml").read_text()
    locks = {f"locks/{file.name}" for file in ROOT.glob("locks/*.txt") if not file.name.startswith("torch-")}
    modules = {str(file.relative_to(ROOT)) for file in ROOT.glob("hack/**/go.mod")}
    assert set(re.findall(r"--lockfile=(?:requirements\.txt:)?(\S+)", scan)) == locks | modules
    targets = re.findall(r"^FROM \S+ AS (operator|sidecar)$", (ROOT / "Dockerfile").read_text(), re.M)
    assert jobs(WORKFLOWS / "scan.yml")["images"]["strategy"]["matrix"]["target"] == targets

    ours = re.findall(r"^FROM \S+ AS (operator|sidecar|torch-plugin)$", (ROOT / "Dockerfile").read_text(), re.M)
    assert set(jobs(WORKFLOWS / "release.yml")["images"]["strategy"]["matrix"]["target"]) == set(ours) > set(targets)

    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    watched = {one["package-ecosystem"]: set(one.get("directories", [one.get("directory")])) for one in updates}
    places = {
        "gomod": modules,
        "docker": {name for name in files("*Dockerfile") if not name.startswith("tests/")},
        "uv": {*files("*pyproject.toml"), *files("locks/*.in")},
    }
    for ecosystem, found in places.items():
        assert found
        assert watched[ecosystem] == {f"/{Path(name).parent}".rstrip(".") for name in found}, ecosystem
    assert watched["github-actions"] == {"/"}


def test_each_line_of_codeowners_is_about_something() -> None:
    lines = [line.split() for line in (ROOT / ".github" / "CODEOWNERS").read_text().splitlines() if line[0] != "#"]
    assert lines[0][0] == "*"
    for pattern, *owners in lines:
        assert owners
        assert all(owner.startswith("@elasticjob/") for owner in owners)
        assert pattern == "*" or (ROOT / pattern.strip("/")).exists(), pattern
