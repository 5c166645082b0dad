# SPDX-License-Identifier: Apache-2.0
"""The id of this incarnation of the sidecar: known before the API server answers, and never used before."""

import os
from pathlib import Path

FILE = "starts"


def new_incarnation(batch: str, folder: Path) -> str:
    """The id: `batch`, shared by pods made at once and by no other pod of this name, and the number of earlier starts,
    which is kept in `folder` for the pod's life. Raises OSError, ValueError."""
    file, new = folder / FILE, folder / f"{FILE}.new"
    starts = int(file.read_text()) if file.exists() else 0
    with new.open("w") as written:
        written.write(str(starts + 1))
        written.flush()
        os.fsync(written.fileno())  # a node that loses power starts the same pod again
    new.replace(file)
    return f"{batch}.{starts}"
