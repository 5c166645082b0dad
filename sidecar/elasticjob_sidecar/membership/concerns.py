# SPDX-License-Identifier: Apache-2.0
"""The concerns of a sidecar, in the order in which they look."""

from typing import NamedTuple

from elasticjob_sidecar.membership.scripts import Scripts
from elasticjob_sidecar.membership.stalls import Stalls


class Concerns(NamedTuple):
    scripts: Scripts
    stalls: Stalls
