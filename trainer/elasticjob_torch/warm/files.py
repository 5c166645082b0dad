"""Files, as a prestarted process needs them: what cannot be read or written is no error here."""

from __future__ import annotations

import contextlib
import os


def file_state(file: str) -> tuple[int, int]:
    """When it was changed last, in nanoseconds, and its size in bytes; both 0 where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def read_text(path: str) -> str:
    """All of the file; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def write_text(path: str, text: str) -> bool:
    """Say whether that could be done."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return False
    return True


def pour(kept: int, output: int) -> None:
    """Write to one descriptor what the other has, from its beginning."""
    at = 0
    with contextlib.suppress(OSError):
        while data := os.pread(kept, 65536, at):
            at += len(data)
            while data:
                data = data[os.write(output, data) :]
