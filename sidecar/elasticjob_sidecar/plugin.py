# SPDX-License-Identifier: Apache-2.0
"""Lays the torchrun plug-in out for the pod's trainer, in a volume that the trainer may only read."""

import shutil
from pathlib import Path

SOURCE = Path("/opt/elasticjob/trainer")  # of the image
COMPLETE = ".complete"  # the trainer waits for it: what the operator makes of its command knows the name too


def lay_out(folder: Path, source: Path = SOURCE) -> None:
    """Copy it, once in the pod's life: a trainer may be reading it when the sidecar starts again. Raises OSError."""
    if not (folder / COMPLETE).exists():
        for one in source.iterdir():
            if one.is_dir():
                shutil.copytree(one, folder / one.name, dirs_exist_ok=True)
            else:
                shutil.copy(one, folder)
        (folder / COMPLETE).touch()
