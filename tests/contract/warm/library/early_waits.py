# SPDX-License-Identifier: Apache-2.0
"""Takes long to import before the script runs: until somebody says that it is enough."""

import os
import time
from pathlib import Path

from early_package import is_early

_contract = Path(os.environ["CONTRACT"])
if is_early():
    (_contract / f"importing-{os.getpid()}").touch()
    deadline = time.monotonic() + 120
    while not (_contract / "imported").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
