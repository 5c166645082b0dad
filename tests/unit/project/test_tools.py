# SPDX-License-Identifier: Apache-2.0
"""From which node image kubectl is taken, where the one on PATH does not suit."""

import os
import re
from pathlib import Path

import pytest

from support.waiting import run

ROOT = Path(__file__).resolve().parents[3]
PINNED = re.findall(r"k8s.io/kubernetes (v[0-9.]+)", (ROOT / "hack/cluster/programs/go.mod").read_text())[0]
USUAL = f"kindest/node:{PINNED}"
PROGRAMS = {
    "kubectl": """echo '  minor: "33"'""",
    "docker": """echo "$@" >> "$CALLS"
[ "$1 $2" != "image inspect" ] || grep -qxF "${@: -1}" "$IMAGES"
""",
}


def taken_from(folder: Path, version: str, *images: str) -> list[str]:
    """The images from which something is taken, on a machine that has these; it has no other."""
    (folder / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "images").write_text("".join(f"{image}\n" for image in ("debian:trixie-slim", *images)))
    environment = os.environ | {
        "ELASTICJOB_CACHE": str(folder),  # whose programs come first on PATH
        "KUBERNETES": version,
        "CALLS": str(folder / "calls"),
        "IMAGES": str(folder / "images"),
    }
    run(["bash", str(ROOT / "hack/cluster/tools.sh"), "kubectl"], env=environment, check=True)
    calls = [line.split() for line in (folder / "calls").read_text().splitlines()]
    return [call[1] for call in calls if call[0] == "create"]


@pytest.mark.parametrize("version", ["", "v1.33.13"])
def test_without_nodes_of_a_release_kubectl_is_the_usual_clusters(version: str, tmp_path: Path) -> None:
    assert taken_from(tmp_path, version, USUAL) == [USUAL]


def test_a_cluster_of_another_release_has_that_releases_kubectl(tmp_path: Path) -> None:
    assert taken_from(tmp_path, "v1.30.13", USUAL, "kindest/node:v1.30.13") == ["kindest/node:v1.30.13"]
