# SPDX-License-Identifier: Apache-2.0
"""Which incarnation of the sidecar this is: known before the API server answers, and never had by another before."""

import os
from pathlib import Path

FILE = "starts"


def new_incarnation(batch: str, folder: Path) -> str:
    """The id: `batch`, which a pod shares with those made at once but with no other of its name, and how often it was
    started before, which is kept in `folder` for as long as the pod lives. Raises OSError, ValueError."""
    file, new = folder / FILE, folder / f"{FILE}.new"
    starts = int(file.read_text()) if file.exists() else 0
    with new.open("w") as written:
        written.write(str(starts + 1))
        written.flush()
        os.fsync(written.fileno())  # a node that loses its power starts the same pod again
    new.replace(file)
    return f"{batch}.{starts}"
