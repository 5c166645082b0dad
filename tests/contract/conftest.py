# SPDX-License-Identifier: Apache-2.0
"""One cluster without machines for all contract tests; a failure shows its processes' logs."""

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from contract.one_plane import OnePlane, ask
from contract.plane import ROOT, Job, OwnPlane, Plane

TRAIN = ("test_living", "test_live_parts")  # in the tests' own process, whose first optimizer takes it seconds
LONGEST = ("test_warm_restart", "test_torchrun", "test_live_job", "test_living", "test_semantics")


def pytest_configure(config: pytest.Config) -> None:
    """The plug-in's entry point, as a trainer's image finds it: torch looks when it is imported."""
    config.addinivalue_line("markers", "any_torch: it shows nothing of torch, so make test runs it with one torch")
    spec = importlib.util.spec_from_file_location("plugin_metadata", ROOT / "hack/images/plugin_metadata.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    directory = Path(config.stash.setdefault(_directory, _new_directory()))
    module.write_metadata(ROOT / "pyproject.toml", directory)
    paths = [str(directory), str(ROOT / "trainer")]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest begin first, so that no process ends long after the others. Tests that share what is
    made once for their file, or for a process, run in one."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
    for item in items:
        if item.path.stem in TRAIN:
            item.add_marker(pytest.mark.xdist_group("train"))
        elif shares(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def shares(item: pytest.Item) -> bool:
    """Whether it uses a fixture that is made once for its file."""
    found: dict[str, Any] = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    return any(one.scope == "module" for fixtures in found.values() for one in fixtures)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    """Tell a process that runs tests where to ask for the cluster."""
    stash = node.config.stash
    if _plane not in stash:
        stash[_plane] = OnePlane()
    node.workerinput["plane"] = stash[_plane].port


def pytest_unconfigure(config: pytest.Config) -> None:
    if _plane in config.stash:
        config.stash[_plane].stop()
    shutil.rmtree(config.stash[_directory], ignore_errors=True)


_directory = pytest.StashKey[str]()
_plane = pytest.StashKey[OnePlane]()


def _new_directory() -> str:
    return tempfile.mkdtemp(prefix="contract-plugin-")


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Nothing that a test's handlers leave in this process's environment, as their mark, is there for the next test."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest) -> Iterator[Plane]:
    asked: dict[str, Any] | None = getattr(request.config, "workerinput", None)
    if asked is not None:
        yield ask(asked["plane"])
    else:
        with OwnPlane() as started:
            yield started


@pytest.fixture
def new_job(plane: Plane, request: pytest.FixtureRequest) -> Iterator[Callable[..., Job]]:
    """Makes ElasticJobs; each is deleted at the end of the test."""
    with ExitStack() as stack:
        request.node.stash[_jobs] = jobs = []

        def make(**spec: Any) -> Job:
            job = stack.enter_context(plane.job(**spec))
            jobs.append(job)
            return job

        yield make


_jobs = pytest.StashKey[list[Job]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    if report.when == "call" and report.failed:
        for job in item.stash.get(_jobs, []):
            report.sections.append((job.name, job.told()))
            for path in sorted(job.plane.logs.glob(f"{job.name}-*.log")):
                report.sections.append((path.stem, job.plane.log_of(path.stem)))
            report.sections.append(("operator", job.plane.log_of("operator")))
            report.sections.append(("cluster", job.plane.log_of("cluster")))
    return report
