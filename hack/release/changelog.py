# SPDX-License-Identifier: Apache-2.0
"""CHANGELOG.md, cut into its versions."""

import re

HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?P<date>.*)$", re.M)
DATED = re.compile(r" - \d{4}-\d{2}-\d{2}")


class ChangelogError(Exception):
    """CHANGELOG.md does not have what a release needs; the message says what to write."""


def sections(text: str) -> dict[str, tuple[str, str]]:
    """Name of each version to what follows it in its heading and to the text below, the newest first."""
    headings = list(HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    return {
        heading["name"]: (heading["date"], text[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=True)
    }


def notes(text: str, version: str) -> str:
    """What changed with `version`. Raises ChangelogError unless it has a dated section that says something."""
    found = sections(text)
    if version not in found:
        raise ChangelogError(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'; move [Unreleased] there")
    date, body = found[version]
    if not DATED.fullmatch(date):
        raise ChangelogError(f"CHANGELOG.md: the heading of [{version}] must be '## [{version}] - YYYY-MM-DD'")
    if not body:
        raise ChangelogError(f"CHANGELOG.md: [{version}] is empty; say what changed")
    return body


def check_ready(text: str, version: str) -> None:
    """Raise ChangelogError unless `version` is the newest section, with notes, and nothing is left unreleased."""
    notes(text, version)
    found = sections(text)
    if found.get("Unreleased", ("", ""))[1]:
        raise ChangelogError(f"CHANGELOG.md: [Unreleased] is not empty; move its lines to [{version}]")
    newest = next(name for name in found if name != "Unreleased")
    if newest != version:
        raise ChangelogError(f"CHANGELOG.md: the newest version is [{newest}], and the tag is of {version}")
