"""A cluster test is run once more where the machine has failed it, and nowhere else."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
CONFTEST = """
import pytest
from e2e.hiccups import OF_RUNC, pytest_runtest_protocol

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.failed and "runc" in item.name:
        report.sections.append(("events", f"Failed: {OF_RUNC}: unknown"))
    return report
"""
CASES = """
import pytest

tried = []

@pytest.fixture
def times(request):
    tried.append(request.node.name)
    return tried.count(request.node.name)

def test_runc_fails_once(times):
    assert times == 2

def test_runc_fails_always(times):
    assert times == 0

def test_fails_by_itself(times):
    assert times == 2
"""


def test_once_more_and_only_for_the_machine(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_cases.py").write_text(CASES)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        f"--rootdir={tmp_path}",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    run = subprocess.run(
        [*command, str(tmp_path)], env={"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=False
    )
    assert "2 failed, 1 passed" in run.stdout, run.stdout
    assert run.stdout.count("once more, as runc could not freeze a container") == 2
