# SPDX-License-Identifier: Apache-2.0
"""The blocks of the documents' pages: shell commands and manifests, as their readers copy them.

A shell block is run by a test unless a comment before it, which readers do not see, says why not.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
# the pages whose commands are run, each in its order
RUN = ("quick-start.md", "installation.md", "operations.md", "moving.md")
# sections of the quick start that need a cluster with nodes: tests/e2e/test_docs.py runs these and the others
ON_A_CLUSTER = (
    "Get a cluster",
    "Get ElasticJob into it",
    "See that it works",
    "Watch it begin",
    "Change its size while it trains",
    "Look at it",
    "The end",
    "Cleaning up",
)

BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
NOT_RUN = re.compile(r"<!-- not run by a test(?: of this page)?: (\w[^>]*) -->$")
FILE = re.compile(r"`([\w/-]+\.yaml)`:\s*$")


class Block(NamedTuple):
    """`file`: the name under which the text before it tells to save it. `number` counts a page's blocks.

    `not_run`: why no test of the page runs it; empty means that one does.
    """

    page: str
    section: str
    number: int
    language: str
    text: str
    file: str = ""
    not_run: str = ""

    @property
    def is_run(self) -> bool:
        return not self.not_run

    @property
    def name(self) -> str:
        return f"{self.page} {self.section or 'top'} {self.number}"


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """The fenced blocks of `page` in these languages, in its order."""
    text = page.read_text()
    for number, match in enumerate(BLOCK.finditer(text)):
        before = text[: match.start()].rstrip()
        sections = re.findall(r"^##+ (.*)$", before, re.M)
        file, remark = FILE.search(before), NOT_RUN.search(before)
        section = sections[-1] if sections else ""
        found = Block(page.name, section, number, *match.groups(), file[1] if file else "", remark[1] if remark else "")
        if found.language in languages:
            yield found


def manifests() -> list[Block]:
    """All whole manifests of all pages, but for what no API server takes."""
    found = [block for page in PAGES for block in blocks(page, "yaml")]
    return [
        block for block in found if block.text.startswith("apiVersion:") and "kind: Kustomization" not in block.text
    ]
