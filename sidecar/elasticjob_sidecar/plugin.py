# SPDX-License-Identifier: Apache-2.0
"""Copy the torchrun plug-in for the pod's trainer into a volume that the trainer can only read."""

import shutil
from pathlib import Path

SOURCE = Path("/opt/elasticjob/trainer")  # in the image
COMPLETE = ".complete"  # the trainer waits for it; the command that the operator builds uses this name too


def lay_out(folder: Path, source: Path = SOURCE) -> None:
    """Copy the plug-in, once in the pod's life: a trainer may be reading it when the sidecar restarts. Raises
    OSError."""
    if not (folder / COMPLETE).exists():
        for one in source.iterdir():
            if one.is_dir():
                shutil.copytree(one, folder / one.name, dirs_exist_ok=True)
            else:
                shutil.copy(one, folder)
        (folder / COMPLETE).touch()
