# SPDX-License-Identifier: Apache-2.0
"""The distributions of this repository: each pyproject.toml, at the top and in a folder, makes one."""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def projects(root: Path = ROOT) -> dict[Path, dict[str, Any]]:
    """Each pyproject.toml that makes a distribution, and its table `project`."""
    files = [root / "pyproject.toml", *sorted(root.glob("*/pyproject.toml"))]
    return {file: tomllib.loads(file.read_text())["project"] for file in files}
