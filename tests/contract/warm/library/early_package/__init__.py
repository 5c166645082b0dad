# SPDX-License-Identifier: Apache-2.0
"""A package of a library; it can tell whether a script runs yet."""

import sys


def is_early():
    """Say whether Python is still about to begin: what no module should ask, but some may depend on."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "execsitecustomize":
        frame = frame.f_back
    return frame is not None
