# SPDX-License-Identifier: Apache-2.0
"""Pages as GitHub shows them become pages as mkdocs reads them."""

import re
import sys
from itertools import pairwise

import pytest

from support.doc_pages import DOCS, PAGES, ROOT

sys.path.append(str(ROOT / "hack"))
import docs_site

REPOSITORY = "https://example.com/project/"


@pytest.mark.parametrize(
    ("page", "link", "of_the_site"),
    [
        ("a.md", "[x](b.md#c)", "[x](b.md#c)"),
        ("a.md", "[x](#c)", "[x](#c)"),
        ("a.md", "[x](https://example.org/y)", "[x](https://example.org/y)"),
        ("a.md", "[x](../README.md#c)", "[x](https://example.com/project/blob/main/README.md#c)"),
        ("a.md", "[x](../CHANGELOG.md)", "[x](changelog.md)"),
        ("a.md", "![x](assets/y.svg)", "![x](assets/y.svg)"),
        ("a.md", "[x](../charts/elasticjob/README.md#values)", "[x](chart.md#values)"),
        ("chart.md", "[x](../../docs/upgrades.md)", "[x](upgrades.md)"),
        ("chart.md", "[x](values.yaml)", "[x](https://example.com/project/blob/main/charts/elasticjob/values.yaml)"),
    ],
)
def test_links(page: str, link: str, of_the_site: str) -> None:
    assert docs_site.linked(link, page, REPOSITORY) == of_the_site


@pytest.mark.parametrize(
    ("commonmark", "by_four"),
    [
        ("- a\n  b\n- c", "- a\n    b\n- c"),
        ("1. a\n\n   b\n\n   - c\n     d\n\n   e\n\nf", "1. a\n\n    b\n\n    - c\n        d\n\n    e\n\nf"),
        ("- a\n\n      code\n        more\n\n- b", "- a\n\n        code\n          more\n\n- b"),
        ("    code\n\n    - no item\n      as it is", "    code\n\n    - no item\n      as it is"),
        (
            "- a\n\n  ```sh\n  b\n\n    c\n  - d\n  ```\n\n  e",
            "- a\n\n    ```sh\n    b\n\n      c\n    - d\n    ```\n\n    e",
        ),
        ("```\n- a\n  b\n```\n- c\n  d", "```\n- a\n  b\n```\n- c\n    d"),
        ("- a\nlazy\n\nb", "- a\n    lazy\n\nb"),
    ],
)
def test_lists(commonmark: str, by_four: str) -> None:
    assert docs_site.nested_by_four(commonmark) == by_four


def test_a_page_asks_nobody_for_stars() -> None:
    assert docs_site.on_post_page('<a class="x" data-md-component="source">') == '<a class="x">'


def test_lists_have_a_blank_line_before_them() -> None:
    """Python-Markdown would take the list for more of the paragraph."""
    for page in PAGES:
        fence = False
        for before, line in pairwise(page.read_text().splitlines()):
            fence ^= before.startswith("```")
            if docs_site.ITEM.match(line) and not fence:
                assert not before or before[0] == " " or docs_site.ITEM.match(before), f"{page.name}: {line}"


def test_drawings_need_nothing_from_elsewhere() -> None:
    drawings = list(DOCS.glob("assets/*.svg"))
    assert len(drawings) == 3
    for drawing in drawings:
        text = drawing.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "http" not in text
        assert "<title" in text


@pytest.mark.parametrize("name", ["parts", "change"])
def test_drawings_have_a_dark_colour_for_each_light_one(name: str) -> None:
    light, _, dark = (DOCS / "assets" / f"{name}.svg").read_text().partition("@media (prefers-color-scheme: dark)")
    rules, _, drawing = dark.partition("</style>")
    for kind in ("fill", "stroke"):
        colours = set(re.findall(rf'{kind}="(#\w+)"', light + drawing))
        assert colours
        assert colours <= set(re.findall(rf'\[{kind}="(#\w+)"\]', rules))
        assert not colours & set(re.findall(rf"{kind}: (#\w+)", rules))


@pytest.mark.parametrize(
    ("titles", "separator", "wrong"),
    [
        ({"a/": "Autoscaling (HPA)"}, r"[\s()]+", []),
        ({"a/": "Autoscaling (HPA)"}, r"\s+", [("HPA", "a/")]),
        ({"a/": "Autoscaling", "b/": "Words"}, r"\s+", [("HPA", "a/")]),
        ({"a/": "HPA and more", "b/": "HPA"}, r"\s+", [("HPA", "a/")]),
        ({"a/": "HPA", "b/": "More of HPA"}, r"\s+", []),
    ],
)
def test_words_by_which_a_search_finds_its_page(
    titles: dict[str, str], separator: str, wrong: list[tuple[str, str]]
) -> None:
    entries = [{"location": place, "title": title} for place, title in titles.items()]
    assert list(docs_site.misled(entries, separator, {"HPA": "a/"})) == wrong
