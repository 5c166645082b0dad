# SPDX-License-Identifier: Apache-2.0
"""Never comes to an end when it is imported before the script runs."""

import os
import threading
from pathlib import Path

from early_package import is_early

if is_early():
    (Path(os.environ["CONTRACT"]) / f"importing-{os.getpid()}").touch()
    threading.Event().wait()
