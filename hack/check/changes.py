# SPDX-License-Identifier: Apache-2.0
"""What changed since a commit, as git tells it: files with their texts before and now."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

UPSTREAMS = ("@{upstream}", "origin/HEAD", "origin/main", "origin/master")


class NoSuchCommit(Exception):
    pass


@dataclass(frozen=True)
class Tree:
    """`before`: the texts of changed and deleted files that were there. `now`: of all Python files that are there."""

    commit: str
    changed: frozenset[str]
    others: frozenset[str]
    before: Mapping[str, str]
    now: Mapping[str, str]


def tree(root: Path, since: str) -> Tree:
    """With `since` a commit or branch: what its common ancestor with HEAD does not have.

    Without: what the upstream does not have. Where there is no upstream, what HEAD does not have.
    """
    commit = _ancestor(root, since)
    changed = set(_names(root, "diff", "--name-only", "--no-renames", commit))
    changed |= set(_names(root, "ls-files", "--others", "--exclude-standard"))
    there = {*_names(root, "ls-files"), *changed}
    there = {path for path in there if (root / path).is_file()}
    old = set(_names(root, "ls-tree", "-r", "--name-only", commit)) & changed
    return Tree(
        commit,
        frozenset(changed),
        frozenset(path for path in there | changed if not path.endswith(".py")),
        {path: _git(root, "show", f"{commit}:{path}") for path in old if path.endswith(".py")},
        {path: (root / path).read_text() for path in there if path.endswith(".py")},
    )


def _ancestor(root: Path, since: str) -> str:
    for name in (since,) if since else UPSTREAMS:
        found = subprocess.run(
            ["git", "merge-base", "HEAD", name], cwd=root, capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            return found.stdout.strip()
    if since:
        raise NoSuchCommit(
            f"SINCE={since}: no commit that HEAD has an ancestor in common with; name a commit or a branch"
        )
    return _git(root, "rev-parse", "HEAD").strip()


def _names(root: Path, *words: str) -> list[str]:
    return [name for name in _git(root, *words, "-z").split("\0") if name]


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout
