# SPDX-License-Identifier: Apache-2.0
"""Remembers what it sees when it is imported: of the script that imports it, too."""

import os
import sys
import threading

_main = sys.modules["__main__"]
SEEN = {
    "argv": list(sys.argv),
    "path": list(sys.path),
    "folder": os.getcwd(),
    "main": [_main.__name__, getattr(_main, "__file__", None)],
    "threads": threading.active_count(),
    "streams": [stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)],
}
