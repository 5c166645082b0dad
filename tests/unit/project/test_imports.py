"""The import contracts of `pyproject.toml` find what they are there to find: each test seeds one mistake."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARTS = ("core", "operator", "sidecar", "trainer", "cli")
SECONDS = 120.0

PURE_ROOMS = [
    "core/elasticjob/rendezvous/losses.py",
    "operator/elasticjob_operator/job/pace.py",
    "operator/elasticjob_operator/objects/command.py",
    "sidecar/elasticjob_sidecar/membership/scripts.py",
    "cli/elasticjob_cli/why/findings.py",
]

Seed = Callable[[str, str], None]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of all that the contracts speak of."""
    for part in PARTS:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "hack" / "lint", tmp_path / "hack" / "lint")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def seed(house: Path, module: str, line: str) -> None:
    with (house / module).open("a") as file:
        file.write(f"{line}\n")


def lint(house: Path) -> str:
    """What the linter says of it; empty when all contracts are kept."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(house / part) for part in PARTS), "COLUMNS": "200"}
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    ran = subprocess.run(
        [sys.executable, "-c", program, "--no-logo", "--no-cache"],
        cwd=house,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    return ran.stdout + ran.stderr if ran.returncode else ""


def test_the_contracts_are_kept(house: Path) -> None:
    assert not lint(house)


@pytest.mark.parametrize("module", PURE_ROOMS)
def test_a_clock_in_a_pure_room_is_found(house: Path, module: str) -> None:
    seed(house, module, "import time")
    name = module.partition("/")[2].removesuffix(".py").replace("/", ".")
    assert f"{name} -> time" in lint(house)


def test_a_clock_that_is_imported_inside_a_function_is_found(house: Path) -> None:
    seed(house, "sidecar/elasticjob_sidecar/membership/view.py", "def late() -> None:\n    from time import monotonic")
    assert "elasticjob_sidecar.membership.view -> time" in lint(house)


def test_what_lies_behind_a_module_of_ours_is_found(house: Path) -> None:
    """The arithmetic of signs is shared by all parts, and the fields of the API take a number from it."""
    seed(house, "core/elasticjob/signs.py", "import random")
    said = lint(house)
    assert "elasticjob_sidecar.membership is not allowed to import random" in said
    assert "elasticjob_operator.objects is not allowed to import random" in said
    assert "elasticjob.fields -> elasticjob.signs" in said


def test_a_renderer_that_imports_a_client_is_found(house: Path) -> None:
    seed(house, "operator/elasticjob_operator/objects/pods.py", "from elasticjob_operator.cluster.client import Kube")
    said = lint(house)
    assert "elasticjob_operator.objects is not allowed to import aiohttp" in said
    assert "elasticjob_operator.objects is not allowed to import elasticjob_operator.cluster" in said


def test_a_room_that_imports_one_above_it_is_found(house: Path) -> None:
    seed(house, "sidecar/elasticjob_sidecar/kubernetes/retry.py", "from elasticjob_sidecar.store import transport")
    assert "elasticjob_sidecar.kubernetes is not allowed to import elasticjob_sidecar.store" in lint(house)


def test_a_module_without_a_place_in_the_order_is_found(house: Path) -> None:
    (house / "operator" / "elasticjob_operator" / "attic.py").write_text('"""New."""\n')
    assert "elasticjob_operator.attic" in lint(house)


def test_a_dependency_that_nobody_allowed_is_found(house: Path) -> None:
    seed(house, "trainer/elasticjob_torch/script/client.py", "import requests")
    assert "elasticjob_torch.script.client -> requests" in lint(house)


def test_pure_rooms_ask_no_clock_by_way_of_a_date() -> None:
    """Dates are read and written there, so `datetime` may be imported."""
    modules = [path for room in PURE_ROOMS for path in (ROOT / room).parent.glob("*.py")]
    assert len(modules) > len(PURE_ROOMS)
    for path in modules:
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        called = {function.attr for function in calls if isinstance(function, ast.Attribute)}
        assert not called & {"now", "today", "utcnow"}, path
