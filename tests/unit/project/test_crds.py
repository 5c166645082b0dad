"""The CRDs that are generated from the models, and what a checkout must not hold."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "crds").glob("*.yaml"))
NOT_STRUCTURAL = {"$ref", "$defs", "anyOf", "title", "const", "exclusiveMinimum"}

Schema = dict[str, Any]


def schema_of(path: Path) -> Schema:
    schema: Schema = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    for name, field in {
        **schema.get("properties", {}),
        **({"[]": schema["items"]} if "items" in schema else {}),
    }.items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_field_is_explained(path: Path) -> None:
    assert [name for name, field in fields(schema_of(path)) if not field.get("description")] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_is_structural_and_sets_no_status(path: Path) -> None:
    for name, field in fields(schema_of(path)):
        assert not NOT_STRUCTURAL & field.keys(), name
        assert not (name.startswith(".status") and "default" in field), name


def test_the_operators_folder_does_not_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    code = "import operator, collections; print(operator.add(1, 2))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "3\n"


def test_a_stale_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.util.spec_from_file_location("crds", ROOT / "hack" / "crds.py")
    assert module is not None
    assert module.loader is not None
    crds = importlib.util.module_from_spec(module)
    module.loader.exec_module(crds)
    monkeypatch.setattr(sys, "argv", ["crds", "--check", "--directory", str(tmp_path)])
    with pytest.raises(SystemExit, match="run `make crds`"):
        crds.main()
