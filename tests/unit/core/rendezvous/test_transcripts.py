# SPDX-License-Identifier: Apache-2.0
"""The rendezvous, rule by rule, as transcripts: each is the story of one job, and its title is the claim.

`support.rendezvous_transcript` says how to read them. `REWRITE_TRANSCRIPTS=1 pytest PATH_OF_THIS_FILE` writes them anew
after a change that is meant to change what they say, for git to show the difference.
"""

import os
from pathlib import Path

import pytest

from support.rendezvous_transcript import play

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def sections(path: Path) -> list[str]:
    return path.read_text().strip().split("\n\n")


if "REWRITE_TRANSCRIPTS" in os.environ:
    for path in FILES:
        path.write_text("\n\n".join(map(play, sections(path))) + "\n")


def title_of(section: str) -> str:
    return section.partition("\n")[0].removeprefix("# ").rstrip(".")


@pytest.mark.parametrize(
    "section",
    [pytest.param(one, id=f"{path.stem}: {title_of(one)}") for path in FILES for one in sections(path)],
)
def test_transcript(section: str) -> None:
    assert play(section) == section
