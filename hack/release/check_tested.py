# SPDX-License-Identifier: Apache-2.0
"""Check that pages name those versions of Kubernetes, torch and Python that tests run, and that the oldest one that the
project promises is among them. What is run is read from where it is set: workflows, locks, the cluster's programs.

python hack/release/check_tested.py            the main page and those with a list of versions
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml
from project import ROOT

MAIN_PAGE = "README.md"  # names all that is tested, and nothing else
PAGES = (MAIN_PAGE, "docs/README.md", "docs/installation.md", "docs/operations.md")  # name nothing else
SUBJECTS = ("Kubernetes", "torch", "Python")  # pages name their minor versions only
RELEASE, CI = (f".github/workflows/{name}.yml" for name in ("release", "ci"))

VERSION = r"(?<![\w.])\d+\.\d+(?![\d.]*\d)"
# "Kubernetes 1.30, 1.33 and 1.37", "**Kubernetes 1.30** or newer"
MENTION = re.compile(rf"\b({'|'.join(SUBJECTS)})[ *]{{1,3}}({VERSION}(?:(?:, | and | to ){VERSION})*)")
# a row of a table whose first cell names the subject
ROW = re.compile(rf"^\| ({'|'.join(SUBJECTS)})\b[^|]*\|(.*)$", re.MULTILINE)
# what a release of Kubernetes lacks is no claim about it
LACKS = re.compile(r"^#+ What older versions lack$.*?(?=^#|\Z)", re.MULTILINE | re.DOTALL)


class Tested(NamedTuple):
    """Minor versions of a subject: those that tests run or check, and the oldest that is promised, with its place."""

    versions: frozenset[str]
    oldest: str
    promise: str


def tested(root: Path) -> dict[str, Tested]:
    """By subject."""
    chart = yaml.safe_load((root / "charts/elasticjob/Chart.yaml").read_text())["kubeVersion"]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (torch,) = project["optional-dependencies"]["trainer"]
    return {
        "Kubernetes": Tested(_of_kubernetes(root), *_promise(chart, "charts/elasticjob/Chart.yaml: kubeVersion")),
        "torch": Tested(_of_torch(root), *_promise(torch, "pyproject.toml: the extra trainer")),
        "Python": Tested(
            _of_python(root), *_promise(project["requires-python"], "pyproject.toml: project.requires-python")
        ),
    }


def mistakes(root: Path) -> Iterator[str]:
    """Sentences that say what has to be changed; none when pages and tests agree."""
    known = tested(root)
    for subject, one in known.items():
        if one.oldest not in one.versions or one.oldest != min(one.versions, key=_order):
            yield (
                f"{one.promise} promises {subject} {one.oldest}, and the oldest that is tested is "
                f"{min(one.versions, key=_order)}: test {one.oldest}, or promise the other"
            )
    for page in PAGES:
        named = _named((root / page).read_text())
        for subject, versions in named.items():
            for version in sorted(versions - known[subject].versions, key=_order):
                yield f"{page} names {subject} {version}, which is not tested; {_those(subject, known)}"
        if page == MAIN_PAGE:
            for subject, one in known.items():
                for version in sorted(one.versions - named[subject], key=_order):
                    yield f"{page} does not name {subject} {version}, which is tested; {_those(subject, known)}"


def _those(subject: str, known: dict[str, Tested]) -> str:
    return f"it must name {', '.join(sorted(known[subject].versions, key=_order))}"


def _named(text: str) -> dict[str, set[str]]:
    """The minor versions that a page names, by subject."""
    named: dict[str, set[str]] = {subject: set() for subject in SUBJECTS}
    text = LACKS.sub("", text)
    for mention in (*MENTION.finditer(" ".join(text.split())), *ROW.finditer(text)):
        named[mention[1]] |= set(re.findall(VERSION, mention[2]))
    return named


def _of_kubernetes(root: Path) -> frozenset[str]:
    jobs = yaml.safe_load((root / RELEASE).read_text())["jobs"].values()
    released = [one for job in jobs for one in job.get("strategy", {}).get("matrix", {}).get("kubernetes", [])]
    (usual,) = re.findall(
        r"^require k8s\.io/kubernetes (\S+)$", (root / "hack/cluster/programs/go.mod").read_text(), re.M
    )
    return _minors(*released, usual)


def _of_torch(root: Path) -> frozenset[str]:
    locks = "\n".join(lock.read_text() for lock in sorted((root / "locks").glob("*.txt")))
    return _minors(*re.findall(r"^torch==(\S+)", locks, re.M))


def _of_python(root: Path) -> frozenset[str]:
    """Those whose unit tests run, and those that mypy reads the plug-in for."""
    units = yaml.safe_load((root / CI).read_text())["jobs"]["unit"]["strategy"]["matrix"]["python"]
    return _minors(*units, *re.findall(r"mypy --python-version (\S+) trainer", (root / "Makefile").read_text()))


def _minors(*versions: str) -> frozenset[str]:
    """Of full versions: 1.30 of v1.30.14."""
    return frozenset(".".join(version.removeprefix("v").split(".")[:2]) for version in versions)


def _promise(requirement: str, place: str) -> tuple[str, str]:
    """The version in `>=1.30.0-0` or `torch>=2.6`, and the place."""
    found = re.search(r">=(\d+\.\d+)", requirement)
    return (found[1] if found else f"none ('{requirement}')", place)


def _order(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="check_tested.py", description="Check that pages name what is tested.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    arguments = parser.parse_args()
    if found := list(mistakes(arguments.root)):
        sys.exit("\n".join(f"error: {sentence}" for sentence in found))


if __name__ == "__main__":
    main()
