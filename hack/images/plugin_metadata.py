# SPDX-License-Identifier: Apache-2.0
"""Write the dist-info directory by which torchrun finds the plug-in of the trainer.

    plugin_metadata.py PYPROJECT DIRECTORY

The plug-in reaches trainers as plain files, without an installer. torch asks importlib.metadata for the
entry-point group `torchrun.handlers`, so beside the package there must be a name, a version and that entry.
"""

import sys
import tomllib
from pathlib import Path

GROUP = "torchrun.handlers"


def write_metadata(pyproject: Path, directory: Path) -> Path:
    project = tomllib.loads(pyproject.read_text())["project"]
    name, version = project["name"], project["version"]
    dist_info = directory / f"{name}-{version}.dist-info"
    dist_info.mkdir(parents=True)
    (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    entries = "".join(f"{entry} = {target}\n" for entry, target in project["entry-points"][GROUP].items())
    (dist_info / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}")
    return dist_info


if __name__ == "__main__":
    print(write_metadata(Path(sys.argv[1]), Path(sys.argv[2])))
