# SPDX-License-Identifier: Apache-2.0
"""Files of this container: one that cannot be read or written is no error."""

from __future__ import annotations

import contextlib
import os


def file_state(file: str) -> tuple[int, int]:
    """Return when the file was last changed, in nanoseconds, and its size in bytes; both 0 without a file."""
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def read_text(path: str) -> str:
    """Return the file's text; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def write_text(path: str, text: str) -> bool:
    """Write the file; return whether that succeeded."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return False
    return True


def pour(kept: int, output: int) -> None:
    """Copy a descriptor's file from its beginning to another descriptor."""
    at = 0
    with contextlib.suppress(OSError):
        while data := os.pread(kept, 65536, at):
            at += len(data)
            while data:
                data = data[os.write(output, data) :]
