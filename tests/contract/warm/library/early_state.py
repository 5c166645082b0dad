# SPDX-License-Identifier: Apache-2.0
"""Changes the state of the process when it is imported, as libraries do, and opens a file."""

import atexit
import gc
import logging
import os
import signal
import sys
import warnings

os.environ["EARLY_STATE"] = "set by an import"
os.environ.setdefault("EARLY_DEFAULT", os.environ.get("HOME", ""))
warnings.filterwarnings("ignore", "not of interest", module="early_state")
logging.getLogger("early_state").setLevel(logging.ERROR)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
gc.set_threshold(1234)
atexit.register(print, "early_state ends")
opened = open(__file__)  # noqa: SIM115
sys.setrecursionlimit(1100)
SEEN = {"variables": sorted(os.environ), "flags": repr(sys.flags)}
