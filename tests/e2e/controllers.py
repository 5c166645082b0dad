# SPDX-License-Identifier: Apache-2.0
"""The controllers of others that run beside ours, compiled for the cluster from their Go modules."""

import re
from pathlib import Path

MODULES = Path(__file__).resolve().parents[2] / "hack/cluster/controllers"


def version(name: str, module: str) -> str:
    """Which one the set-up compiles."""
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", (MODULES / name / "go.mod").read_text(), re.M)
    assert found is not None, f"{MODULES / name / 'go.mod'} does not name {module}"
    return found[1]
