# SPDX-License-Identifier: Apache-2.0
"""Speaks when it is imported: Python's streams, the C library's, a warning, a log."""

import ctypes
import logging
import os
import sys
import warnings

print("early_speaks: by print")
sys.stderr.write("early_speaks: to stderr\n")
os.write(1, b"early_speaks: by write\n")
ctypes.CDLL(None).puts(b"early_speaks: by the C library")
warnings.warn("early_speaks: is old", stacklevel=1)
logging.getLogger("early_speaks").warning("early_speaks: by a log")
