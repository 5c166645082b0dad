# SPDX-License-Identifier: Apache-2.0
"""What the documents name is there: fields, metrics, values, options, targets, files."""

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import click
import pytest
import yaml

from elasticjob.spec import CONTROLLER
from elasticjob_cli.app import cli
from support.doc_pages import DOCS, PAGES, ROOT, RUN, blocks
from support.operator_metrics import all_families

sys.path.append(str(ROOT / "hack"))
import api_fields
import chart_readme

READ = [*PAGES, ROOT / "README.md", ROOT / "charts/elasticjob/README.md"]
CODE = re.compile(r"`([^`\n]+)`")
FIELD = re.compile(r"(?:(?:spec|status)\.[\w.]+|rendezvous\.\w+)")
SUFFIX = re.compile(r"_(?:total|bucket|sum|count)$")
MODULES = ("elasticjob_torch", "elasticjob_sidecar", "elasticjob_operator", "elasticjob_cli")
# fields of other projects' kinds, and of rows that say what becomes of them
OTHERS = {"spec.rdzvEndpoint", "spec.backoffLimit", "spec.activeDeadlineSeconds", "spec.schedulingPolicy"} | {
    "status.storedVersions"
}

each_page = pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))


def words(page: Path) -> Iterator[str]:
    """What stands between backticks, outside of blocks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    yield from CODE.findall(text)


@cache
def fields() -> frozenset[str]:
    """Of both kinds; those of the rendezvous also by the last part of their names, as pages shorten them."""
    parts = [(kind, part) for kind in ("elasticjobs", "elasticworkers") for part in ("spec", "status")]
    known = {path.replace("[]", "") for kind, part in parts for path, _ in api_fields.fields(kind, part)}
    return frozenset(known | {path.partition(".")[2] for path in known if ".rendezvous." in path})


@each_page
def test_fields(page: Path) -> None:
    for word in words(page):
        field = re.split(r"[:=\s]", word)[0].rstrip(".")
        if FIELD.fullmatch(field) and not field.startswith(("spec.template.", "spec.replicaSpecs.")):
            assert field in fields() | OTHERS, field


@cache
def keys() -> frozenset[str]:
    """The names of all labels and annotations that parts and chart have, without elasticjob.io/."""
    folders = ("core", "operator", "sidecar", "trainer", "cli", "charts")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".yaml"}]
    key = re.compile(
        r"""(?:elasticjob\.io|\{(?:GROUP|KUEUE)\})/([a-z][a-z-]*[a-z])(?=["'])|elasticjob\.io/([a-z-]+):"""
    )
    found = {one[1] or one[2] for path in files for one in key.finditer(path.read_text())}
    return frozenset(found - {CONTROLLER.rpartition("/")[2]})


def test_all_labels_and_annotations_are_on_one_page() -> None:
    assert {"job", "job-uid", "at-least", "cause", "template-hash", "namespaces", "last-writes"} <= keys()
    page = (DOCS / "labels.md").read_text()
    assert [one for one in sorted(keys()) if f".io/{one}`" not in page] == []


@each_page
def test_metrics(page: Path) -> None:
    known = {family.name for family in all_families()}
    for word in re.findall(r"\belasticjob_[a-z_]+\b", page.read_text()):
        if not word.startswith(MODULES) or word.removeprefix("elasticjob_sidecar_") in known:
            assert {word, SUFFIX.sub("", word)} & known, word


@each_page
def test_values_of_the_chart(page: Path) -> None:
    known = {one.key for one in chart_readme.values((ROOT / "charts/elasticjob/values.yaml").read_text())}
    groups = {key.partition(".")[0] for key in known if "." in key} - {"test"}  # also a folder of ours
    for word in words(page):
        value = re.split(r"[:=\s]", word)[0]
        if re.fullmatch(r"[a-zA-Z]+(\.[a-zA-Z]+)+", value) and value.partition(".")[0] in groups:
            assert any(one == value or one.startswith(f"{value}.") for one in known), value


@each_page
def test_the_tools_commands_and_options(page: Path) -> None:
    assert isinstance(cli, click.Group)
    shell = "\n".join(re.findall(r"^(?:    |\$ )*kubectl elasticjob [^\n]*", page.read_text(), re.M)).splitlines()
    for line in [*words(page), *shell]:
        if not (call := re.match(r"\s*(?:\$ )?kubectl (?:elasticjob|ej) ([a-z]\w*)([^|;)]*)", line)):
            continue
        command = cli.get_command(click.Context(cli), call[1])
        assert command, f"there is no command {call[1]}"
        options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        own = call[2].split(" -- ")[0]
        assert set(re.findall(r"(?<=\s)--[a-z-]+", own)) <= options | {"--help"}, line


@each_page
def test_labels_and_annotations(page: Path) -> None:
    for word in words(page):
        if (label := re.fullmatch(r"elasticjob\.io/([a-z-]+)", word)) and label[1] != "v1alpha1":
            assert label[1] in keys() or word == CONTROLLER, word


@each_page
def test_targets_and_tests(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    for target in re.findall(r"`make ([a-z][a-z0-9-]*)", text):
        assert target in targets, target
    for name in re.findall(r"`((?:tests|hack|charts|examples|bench|core|operator|sidecar|trainer)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (test_fields, "`spec.nothing`"),
        (test_metrics, "elasticjob_nothing_total"),
        (test_values_of_the_chart, "`metrics.nothing`"),
        (test_the_tools_commands_and_options, "`kubectl elasticjob why --nothing`"),
        (test_the_tools_commands_and_options, "    kubectl elasticjob why train --nothing"),
        (test_labels_and_annotations, "`elasticjob.io/nothing`"),
        (test_targets_and_tests, "`make nothing`"),
        (test_targets_and_tests, "`tests/nothing.py`"),
    ],
)
def test_what_is_not_there_is_found(check: Callable[[Path], None], text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{text}\n")
    with pytest.raises(AssertionError, match="nothing"):
        check(page)


@pytest.mark.parametrize("page", RUN)
def test_no_command_hides_in_a_block_that_no_test_reads(page: str) -> None:
    text = (DOCS / page).read_text()
    assert len(list(blocks(DOCS / page, "sh", "yaml"))) * 2 == len(re.findall(r"^ *```", text, re.M))
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    assert not re.findall(r"^ {4}(?:\$ )?(?:kubectl|helm|docker|make|pip) .*$", outside, re.M)


def test_the_defaults_of_fields_are_those_of_the_crds() -> None:
    crd = yaml.load((ROOT / "crds/elasticjobs.yaml").read_text(), yaml.CSafeLoader)["spec"]["versions"][0]
    replicas = crd["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["minReplicas"]
    assert api_fields.kind_of(replicas) == "integer from 1 to 4096; default `1`"
    assert api_fields.kind_of({"type": "integer", "minimum": 0, "maximum": 2**53 - 1}) == "integer from 0"
    assert api_fields.kind_of({"type": "string", "enum": ["A", "B"], "default": "A"}) == "`A`, `B`; default `A`"
    assert api_fields.kind_of({"type": "string", "format": "date-time"}) == "string (date-time)"
    assert api_fields.kind_of({"type": "boolean", "default": False}) == "boolean; default `false`"
