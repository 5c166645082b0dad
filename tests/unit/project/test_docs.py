"""What the documents repeat from the code must stay true."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from elasticjob.api import ElasticJobSpec, RendezvousSpec

ROOT = Path(__file__).parents[3]
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
ROW = re.compile(r"^\| `([\w.]+)` \| `?(\w+)`?", re.M)


def test_the_defaults_in_the_api_page_are_the_models() -> None:
    section = (ROOT / "docs" / "api.md").read_text().split("## ")[1]
    told = dict(ROW.findall(section))
    found = {f"rendezvous.{field.alias}": field.default for field in RendezvousSpec.model_fields.values()}
    for field in ElasticJobSpec.model_fields.values():
        if field.alias != "rendezvous":
            found[str(field.alias)] = "required" if field.is_required() else field.default
    words = {None: "none", False: "false"}
    assert told == {name: words.get(value, str(value)) for name, value in found.items()}


def test_the_readme_names_only_tests_and_folders_that_are_there() -> None:
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"`(test_\w+\.py)`", text):
        assert (ROOT / "tests" / "e2e" / name).exists(), name
    for name in re.findall(r"\]\(([\w./-]+)\)", text):
        assert (ROOT / name).exists(), name


def make_docs(monkeypatch: pytest.MonkeyPatch, file: Path, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["docs", "--file", str(file), *options])
    runpy.run_path(str(ROOT / "hack" / "docs.py"), run_name="__main__")


def test_a_page_that_differs_from_the_code_is_refused_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "protocol.md"
    page.write_text(PROTOCOL.replace("| Formed | `RoundBroken` |", "| Formed | `RoundEnded` |"))
    with pytest.raises(SystemExit, match="run `make docs`"):
        make_docs(monkeypatch, page, "--check")
    make_docs(monkeypatch, page)
    assert page.read_text() == PROTOCOL
    make_docs(monkeypatch, page, "--check")


def test_a_page_without_a_marker_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "protocol.md"
    page.write_text(PROTOCOL.replace("make docs: moves", "make docs: steps"))
    with pytest.raises(SystemExit, match="it must have rules, moves, history, steps"):
        make_docs(monkeypatch, page)
