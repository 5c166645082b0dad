# SPDX-License-Identifier: Apache-2.0
"""Where the files of `make check` are."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticjob"
# as in hack/cluster/env.sh
CACHE = Path(os.environ.get("ELASTICJOB_CACHE") or _CACHES)
RECORD = CACHE / "unit-coverage.json.gz"
BUILD = ROOT / "build" / "check"
