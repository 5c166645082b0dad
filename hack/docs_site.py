# SPDX-License-Identifier: Apache-2.0
"""What the site's generator needs to read pages that were written for GitHub: mkdocs.yml names this as a hook.

The pages are CommonMark, and link to files of the whole repository. Python-Markdown, which mkdocs uses, nests lists by
four spaces whatever their marker, and mkdocs knows only `docs/`. It must not change what a page says: on GitHub nothing
of this happens.
"""

import html
import json
import logging
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# files outside of docs/ that are pages of the site too, by the names that they have there
BORROWED = {"charts/elasticjob/README.md": "chart.md", "CHANGELOG.md": "changelog.md"}
# what people look for under a word that is not in the pages' names, and the page or section that a search shows first
FOUND = {
    "HPA": "autoscaling/#a-horizontalpodautoscaler-hpa",
    "HorizontalPodAutoscaler": "autoscaling/#a-horizontalpodautoscaler-hpa",
    "Kueue": "kueue/",
    "OOM": "troubleshooting/#out-of-memory-oom",
    "preemption": "kueue/#preemption",
    "spot": "operations/#spot-nodes-and-preemption",
    "Argo": "argo/",
    "install": "installation/",
}
NESTED = 4
# mkdocs counts the warnings of loggers below its own, and fails
LOG = logging.getLogger("mkdocs.hooks.docs_site")

ITEM = re.compile(r"(?:[-*+]|\d+\.) +")
FENCE = re.compile(r"(```+|~~~+)")
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, *, config: Any, **_: object) -> Any:
    """The hook that adds the borrowed pages."""
    from mkdocs.structure.files import File  # the tests of this module run without mkdocs

    for source, page in BORROWED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: object) -> str:
    """The hook that reads a page: links to files that are no pages lead to the repository."""
    return nested_by_four(linked(markdown, page.file.src_uri, config["repo_url"]))


def on_post_page(output: str, **_: object) -> str:
    """The hook that sees what a page has become: the theme would ask GitHub for the repository's stars at each view."""
    return output.replace(' data-md-component="source"', "")


def on_post_build(*, config: Any, **_: object) -> None:
    """The hook that sees the whole site: it warns of words by which a search does not find what it should."""
    index = json.loads((Path(config["site_dir"]) / "search" / "search_index.json").read_text())
    for word, place in misled(index["docs"], index["config"]["separator"]):
        LOG.warning(
            "a search for '%s' must show '%s' first: its heading must have the word, a longer one may.", word, place
        )


def misled(
    entries: list[dict[str, str]], separator: str, found: Mapping[str, str] = MappingProxyType(FOUND)
) -> Iterator[tuple[str, str]]:
    """The words of `found` that lead elsewhere, and where they should. `entries`: the index's pages and sections.

    The theme's search weighs a title a thousand times as much as text, and takes what begins with the word.
    """
    titles = {one["location"]: re.split(separator, html.unescape(one["title"]).lower()) for one in entries}
    for word, place in found.items():
        named = {where: title for where, title in titles.items() if any(one.startswith(word.lower()) for one in title)}
        if place not in named or len(named[place]) > min(map(len, named.values())):
            yield word, place


def linked(markdown: str, page: str, repository: str) -> str:
    """`markdown` with links as they are between the site's pages, and to the repository's files for all else.

    DOCS_REF in the environment is the branch or tag whose files these are.
    """
    sources = {name: source for source, name in BORROWED.items()}
    ref = os.environ.get("DOCS_REF", "main")
    home = posixpath.dirname(sources.get(page, f"docs/{page}"))

    def of_the_site(link: re.Match[str]) -> str:
        path, anchor = posixpath.normpath(posixpath.join(home, link[1])), link[2] or ""
        if path in BORROWED:
            return f"]({BORROWED[path]}{anchor})"
        if path.startswith("docs/"):
            return f"]({path.removeprefix('docs/')}{anchor})"
        if not (ROOT / path).exists():
            LOG.warning("'%s' contains a link '%s', and the repository has no %s.", page, link[1], path)
        return f"]({repository.rstrip('/')}/blob/{ref}/{path}{anchor})"

    return LINK.sub(of_the_site, markdown)


def nested_by_four(markdown: str) -> str:
    """`markdown` with the content of list items indented by four; CommonMark has it below the item's first word."""
    lines: list[str] = []
    contents, fence, blank = [0], "", True  # the columns in which the open items' contents begin
    for line in markdown.split("\n"):
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        # a line without marker that follows text belongs to its paragraph, wherever it begins
        if text and not fence and (blank or ITEM.match(text)):
            while indent < contents[-1]:
                contents.pop()
        beyond = max(0, indent - contents[-1])
        lines.append(" " * (NESTED * (len(contents) - 1) + beyond) + text if text else "")
        if beyond < NESTED and (mark := FENCE.match(text)):
            fence = "" if fence and text.startswith(fence) else fence or mark[1]
        elif beyond < NESTED and not fence and (item := ITEM.match(text)):
            contents.append(indent + len(item[0]))
        blank = not text
    return "\n".join(lines)
