# SPDX-License-Identifier: Apache-2.0
"""What the documents repeat from the code must stay true."""

import ast
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticjob.api import ElasticJobSpec, RendezvousSpec
from elasticjob.spec import DRAIN_TAINTS, DrainSpec
from support.broken_checkout import files
from support.doc_pages import PAGES, blocks
from support.reader import Reader

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| `([\w.]+)` \| `?(\w+)`?", re.M)


def test_the_defaults_in_the_api_page_are_the_models() -> None:
    section = (ROOT / "docs" / "api.md").read_text().split("## ")[1]
    told = dict(ROW.findall(section))
    found = {f"rendezvous.{field.alias}": field.default for field in RendezvousSpec.model_fields.values()}
    found |= {f"drain.{field.alias}": field.default for field in DrainSpec.model_fields.values()}
    for field in ElasticJobSpec.model_fields.values():
        if field.alias not in ("rendezvous", "drain"):
            found[str(field.alias)] = "required" if field.is_required() else field.default
    words = {"None": "none", "False": "false", "True": "true", str(DRAIN_TAINTS): "ten"}
    assert told == {name: words.get(str(value), str(value)) for name, value in found.items()}


def test_the_readme_names_only_tests_that_are_there() -> None:
    named = re.findall(r"`(test_\w+\.py)`", (ROOT / "README.md").read_text())
    assert named
    for name in named:
        assert (ROOT / "tests" / "e2e" / name).exists(), name


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A copy of the pages that are generated in part."""
    for name in ("protocol.md", "trainer-api.md", "cli.md", "troubleshooting.md", "fields.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path)
    return tmp_path


def make_docs(monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["docs", "--folder", str(folder), *options])
    monkeypatch.syspath_prepend(ROOT / "hack")
    runpy.run_path(str(ROOT / "hack" / "docs.py"), run_name="__main__")


@pytest.mark.parametrize(
    ("page", "told", "wrong"),
    [
        ("protocol.md", "| Formed | `RoundBroken` |", "| Formed | `RoundEnded` |"),
        ("trainer-api.md", "| `Superseded` | 409 |", "| `Superseded` | 410 |"),
        ("cli.md", "| `Suspended` |", "| `Paused` |"),
        ("troubleshooting.md", "#### Unschedulable", "#### NoRoom"),
        ("fields.md", "| `spec.suspend` | boolean; default `false` |", "| `spec.pause` | boolean |"),
        ("trainer-api.md", "text of 1 to 64 characters", "text of 1 to 65 characters"),
    ],
)
def test_a_page_that_differs_from_the_code_is_refused_and_written_anew(
    pages: Path, monkeypatch: pytest.MonkeyPatch, page: str, told: str, wrong: str
) -> None:
    text = (pages / page).read_text()
    assert told in text
    (pages / page).write_text(text.replace(told, wrong))
    with pytest.raises(SystemExit, match="run `make docs`"):
        make_docs(monkeypatch, pages, "--check")
    make_docs(monkeypatch, pages)
    assert (pages / page).read_text() == text
    make_docs(monkeypatch, pages, "--check")


def test_a_page_without_a_marker_is_refused(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = pages / "protocol.md"
    page.write_text(page.read_text().replace("make docs: moves", "make docs: steps"))
    with pytest.raises(SystemExit, match="it must have rules, moves, history, steps"):
        make_docs(monkeypatch, pages)


def nowhere(page: Path) -> Iterator[str]:
    """The links of a page, as GitHub shows it, that lead nowhere within the repository."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for name, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        target = (page.parent / name) if name else page
        if not target.exists():
            yield name
        elif anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
            anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            if anchor not in anchors:
                yield f"{name}#{anchor}"


@pytest.mark.parametrize("page", files("*.md"))
def test_links_lead_somewhere(page: str) -> None:
    assert list(nowhere(ROOT / page)) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A b\n[1](#a-b) [2](a.md#b) [3](b.md)\n![4](../c.svg) [5](https://d.org/e)\n")
    assert list(nowhere(tmp_path / "a.md")) == ["a.md#b", "b.md", "../c.svg"]


def mistaken(page: Path) -> Iterator[str]:
    """The commands on a page's first screen that name no example, no job of one, or a size that the job refuses."""
    screen, jobs = page.read_text().partition("\n## ")[0], dict[str, Any]()
    for folder in re.findall(r"kubectl apply -k (\S+)", screen):
        if not (ROOT / folder / "kustomization.yaml").exists():
            yield folder
            continue
        for file in yaml.safe_load((ROOT / folder / "kustomization.yaml").read_text())["resources"]:
            made = yaml.safe_load_all((ROOT / folder / file).read_text())
            jobs |= {one["metadata"]["name"]: one["spec"] for one in made if one["kind"] == "ElasticJob"}
    for name, replicas in re.findall(r"elasticjob/(\S+)(?: --replicas=(\d+))?", screen):
        if name not in jobs:
            yield name
        elif replicas and not jobs[name]["minReplicas"] <= int(replicas) <= jobs[name]["maxReplicas"]:
            yield f"{name} {replicas}"


@pytest.mark.parametrize("page", ["README.md", "docs/README.md"])
def test_the_commands_of_the_first_screen_can_be_run(page: str) -> None:
    assert "kubectl apply -k examples/" in (ROOT / page).read_text().partition("\n## ")[0]
    assert list(mistaken(ROOT / page)) == []


def test_commands_that_cannot_be_run_are_found(tmp_path: Path) -> None:
    scaled = "kubectl scale elasticjob/first --replicas="
    lines = ["kubectl apply -k examples/none", "kubectl apply -k examples/first", f"{scaled}4", f"{scaled}5"]
    (tmp_path / "a.md").write_text("\n".join([*lines, "kubectl events --for elasticjob/other", "## B", f"{scaled}9"]))
    assert list(mistaken(tmp_path / "a.md")) == ["examples/none", "first 5", "other"]


WHAT_MAY_BE = [(ROOT / "docs" / name).read_text() for name in ("image-and-script.md", "manifest-and-cluster.md")]
ROWS = [
    row
    for page in WHAT_MAY_BE
    for row in page.splitlines()
    if row.startswith("| ") and not row.endswith("| tested by |")
]
TEST = re.compile(r"`(test_\w+)(?:\[([\w-]+)\])?`")
QUOTE = re.compile(r'"([^"]+)"')


@pytest.fixture(scope="module")
def tests() -> str:
    return "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))


@pytest.fixture(scope="module")
def said() -> str:
    """All texts of the product's code, one a line; of an f-string what stands between its values."""
    sources = [file for part in ("core", "operator", "sidecar", "trainer") for file in (ROOT / part).rglob("*.py")]
    nodes = (node for file in sources for node in ast.walk(ast.parse(file.read_text())))
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_what_may_be_there_is_tested_and_says_so(row: str, tests: str, said: str) -> None:
    *_, claim, shown, _ = row.split("|")
    assert TEST.findall(shown)
    for name, case in TEST.findall(shown):
        assert f"def {name}(" in tests, name
        assert case in tests or f'"{case.replace("-", " ")}"' in tests, case
    for sentence in QUOTE.findall(re.sub(r"`[^`]*`", "", claim)):
        for part in re.split(r"\d[\d, ]*", sentence):
            assert part in said, part


def test_blocks_have_no_remarks_for_tests() -> None:
    """A reader copies a block as it is; why no test runs it stands in a comment before it."""
    found = [block for page in PAGES for block in blocks(page, "sh", "yaml", "python")]
    assert [block.name for block in found if re.search(r"#.*\btests?\b.*\brun|#.*\brun by", block.text)] == []
    assert {block.page for block in found if block.not_run} >= {"installation.md", "operations.md", "moving.md"}


def test_a_remark_belongs_to_the_block_that_follows_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run by a test: it is long -->\n```sh\na\n```\n\n```sh\nb\n```\n")
    assert [(block.text, block.not_run) for block in blocks(page, "sh")] == [("a\n", "it is long"), ("b\n", "")]


def test_a_readers_shell_keeps_its_directory_and_what_was_exported(tmp_path: Path) -> None:
    reader = Reader(tmp_path, {"PATH": "/usr/bin:/bin"}, {"tool": 'echo "tool $1"\n'})
    reader.run('mkdir "a b"\ncd "a b"\nexport WORD="x y"\nlocal_word=z', 20)
    said = reader.run('basename "$PWD"; echo "$WORD${local_word:-}"; tool 1', 20)
    assert said.splitlines() == ["a b", "x y", "tool 1"]
    with pytest.raises(AssertionError, match="no such thing"):
        reader.run("echo no such thing >&2; false\ntrue", 20)
