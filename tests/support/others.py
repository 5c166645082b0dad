# SPDX-License-Identifier: Apache-2.0
"""What the set-up keeps of others' controllers, which run beside ours in tests: their versions, charts and CRDs."""

import os
import re
from pathlib import Path

CACHE = Path(
    os.environ.get("ELASTICJOB_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticjob"
)
MODULES = Path(__file__).resolve().parents[2] / "hack/cluster/controllers"


def version(name: str) -> str:
    """Which one the set-up compiles: that of the module of its name, which may end in a major version."""
    file = MODULES / name / "go.mod"
    found = re.search(rf"^\s*(?:require )?\S*/{re.escape(name)}(?:/v\d+)? (v\S+)", file.read_text(), re.M)
    assert found is not None, f"{file} does not name a module {name}"
    return found[1]


def chart(name: str) -> Path:
    """The folder of its chart."""
    return CACHE / f"{name}-{version(name)}"


def crds(name: str) -> list[Path]:
    """The files of its CRDs."""
    found = sorted((chart(name) / "crds").glob("*.yaml"))
    assert found, f"{chart(name)} has no CRDs; run hack/cluster/tools.sh {name}-chart"
    return found
