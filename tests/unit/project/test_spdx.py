# SPDX-License-Identifier: Apache-2.0
"""The licence's line at the head of source files."""

import sys
from pathlib import Path

import pytest

from support.doc_pages import ROOT

sys.path.append(str(ROOT / "hack"))
import spdx

HASH = f"# {spdx.LINE}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""A."""\n', f'{HASH}"""A."""\n'),
        ("#!/bin/sh\necho\n", f"#!/bin/sh\n{HASH}echo\n"),
        ("# Makes.\nall:\n", f"{HASH}# Makes.\nall:\n"),
        (f"{HASH}a\n", f"{HASH}a\n"),
        (f"#!/bin/sh\n{HASH}a\n", f"#!/bin/sh\n{HASH}a\n"),
        ("", ""),
    ],
)
def test_where_the_line_stands(before: str, after: str) -> None:
    assert spdx.with_line(before, HASH) == after


@pytest.mark.parametrize(
    ("name", "comment"),
    [
        ("a.py", HASH),
        ("Dockerfile", HASH),
        ("hack/digits.Dockerfile", HASH),
        ("Makefile", HASH),
        ("a.go", f"// {spdx.LINE}\n\n"),
        ("a.css", f"/* {spdx.LINE} */\n"),
        ("a.yaml", None),
        ("a.md", None),
    ],
)
def test_which_files_have_it(name: str, comment: str | None) -> None:
    assert spdx.comment_of(Path(name)) == comment


def test_the_line_names_the_licence_of_the_project() -> None:
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
    assert "Apache License" in (ROOT / "LICENSE").read_text()
