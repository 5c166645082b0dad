# SPDX-License-Identifier: Apache-2.0
"""Which cluster the tests work on: the local one of `make cluster` only, whatever the user's own kubeconfig names."""

import os
from typing import Any

from support.others import CACHE

Object = dict[str, Any]

USUAL = "elasticjob"
CLUSTER = os.environ.get("ELASTICJOB_CLUSTER", USUAL)  # hack/cluster/env.sh names others by version and addresses
ENVIRONMENT = {
    **os.environ,
    "KUBECONFIG": str(CACHE / f"kubeconfig{CLUSTER.removeprefix(USUAL)}"),
    "PATH": f"{CACHE / 'bin'}{os.pathsep}{os.environ['PATH']}",
}


class Failed(AssertionError):
    """A command or a request ended with an error; the message is what it said."""
