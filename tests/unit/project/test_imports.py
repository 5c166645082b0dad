# SPDX-License-Identifier: Apache-2.0
"""What the import contracts of `pyproject.toml` cannot say; what they find is in `guards.cases`."""

import ast
import re
from pathlib import Path

from guards.cases import PURE_LAYERS
from support.broken_checkout import ROOT


def test_pure_layers_ask_no_clock_by_way_of_a_date() -> None:
    """Dates are read and written there, so `datetime` may be imported."""
    modules = [path for layer in PURE_LAYERS for path in (ROOT / layer).parent.glob("*.py")]
    assert len(modules) > len(PURE_LAYERS)
    for path in modules:
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        called = {function.attr for function in calls if isinstance(function, ast.Attribute)}
        assert not called & {"now", "today", "utcnow"}, path


# what they match, none of which is a sentence of ours: what one part has to know of another is a field
MATCHES = {
    "core/elasticjob/kube/errors.py": "the API server's refusals",
    "core/elasticjob/members.py": "packed lists of members",
    "core/elasticjob/pods.py": "names of pods, and messages of kubelets, runtimes and registries",
    "core/elasticjob/text.py": "ends of sentences, and control characters",
    "cli/elasticjob_cli/cluster/access.py": "lengths of time, as kubectl has them",
    "cli/elasticjob_cli/output/console.py": "colours of a terminal",
    "cli/elasticjob_cli/plans/manifest.py": "names of objects",
    "cli/elasticjob_cli/reading/times.py": "times",
    "operator/elasticjob_operator/actions/template_check.py": "the API server's refusals",
    "operator/elasticjob_operator/actions/worker_pods.py": "the API server's refusals",
    "operator/elasticjob_operator/job/refusal_messages.py": "the API server's refusals",
    "operator/elasticjob_operator/job/share.py": "names of Workloads",
    "operator/elasticjob_operator/objects/command.py": "commands of templates",
    "operator/elasticjob_operator/objects/template.py": "quantities",
    "operator/elasticjob_operator/options.py": "quantities",
    "sidecar/elasticjob_sidecar/api_server/remedies.py": "the API server's refusals",
}


def test_no_part_reads_anothers_sentences() -> None:
    """A module that imports `re` says here what for."""
    paths = [path for part in ("cli", "core", "operator", "sidecar") for path in (ROOT / part).rglob("*.py")]
    assert len(paths) > 150
    assert {str(path.relative_to(ROOT)) for path in paths if imports_re(path)} == MATCHES.keys()


def imports_re(path: Path) -> bool:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    return "re" in names | {node.module for node in nodes if isinstance(node, ast.ImportFrom)}


PASS_ON = {
    "elasticjob.api": "core/elasticjob/api.py",
    "elasticjob.reading": "core/elasticjob/reading/__init__.py",
    "elasticjob.rendezvous": "core/elasticjob/rendezvous/__init__.py",
    "elasticjob_torch.wire": "trainer/elasticjob_torch/wire/__init__.py",
}


def test_somebody_takes_what_a_module_passes_on() -> None:
    """ruff's F401 says nothing of names that a module imports for others."""
    folders = ("cli", "core", "operator", "sidecar", "trainer", "tests", "bench", "hack")
    texts = {path: path.read_text() for part in folders for path in (ROOT / part).rglob("*.py")}
    for module, name in PASS_ON.items():
        own = ast.parse(texts[ROOT / name])
        used = {node.id for node in ast.walk(own) if isinstance(node, ast.Name)}
        imports = [node for node in own.body if isinstance(node, ast.ImportFrom) and node.module != "__future__"]
        passed_on = {one.name for node in imports for one in node.names} - used
        taken = {one for path, text in texts.items() if path != ROOT / name for one in taken_from(text, module)}
        assert len(passed_on) > 5
        assert passed_on - taken == set(), module


def taken_from(text: str, module: str) -> set[str]:
    """The names that a module's `text` imports from `module`, or reads as its attributes."""
    listed = re.findall(rf"^\s*from {re.escape(module)} import (\([^)]*\)|.*)", text, re.MULTILINE)
    read = re.findall(rf"\b{module.rpartition('.')[2]}\.(\w+)", text)
    return {*re.findall(r"\w+", " ".join(listed)), *read}


CUTS = {"startswith", "endswith", "partition", "rpartition", "split", "removeprefix", "removesuffix", "find", "index"}
TOLD = {"message", "reason", "sentence", "cut_off", "finishing"}


def test_the_tool_cuts_no_sentence_of_the_operators_apart() -> None:
    """Be it by a method of strings, or by `in`."""
    paths = [path for folder in ("reading", "why") for path in (ROOT / "cli" / "elasticjob_cli" / folder).glob("*.py")]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in CUTS:
                assert not (isinstance(node.value, ast.Attribute) and node.value.attr in TOLD), (path, node.lineno)
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
                right = node.comparators[0]
                assert not (isinstance(right, ast.Attribute) and right.attr in TOLD), (path, node.lineno)
