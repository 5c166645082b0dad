# SPDX-License-Identifier: Apache-2.0
"""The example's JobSet with the plug-in as an image volume: as its README has the reader take the component in."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from support.waiting import run

EXAMPLE = Path(__file__).parents[2] / "examples/jobset"
LEFT_OUT, TAKEN_IN = "\n# components: [image-volume]", "\ncomponents: [image-volume]"


def objects(folder: Path) -> list[dict[str, Any]]:
    """All objects of the example, which is copied into `folder`, a new one."""
    file = shutil.copytree(EXAMPLE, folder) / "kustomization.yaml"
    text = file.read_text()
    assert LEFT_OUT in text
    file.write_text(text.replace(LEFT_OUT, TAKEN_IN))
    made = run(["kubectl", "kustomize", str(folder)], check=True).stdout
    return list(yaml.safe_load_all(made))
