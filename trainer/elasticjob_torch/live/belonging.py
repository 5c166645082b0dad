# SPDX-License-Identifier: Apache-2.0
"""Says which exceptions belong to the group: they end a step that is done again. Everything else is the script's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch.distributed import DistBackendError, DistNetworkError, DistStoreError

if TYPE_CHECKING:
    from elasticjob_torch.live.links import Links

# torch's own; gloo's errors are plain RuntimeErrors, known by these words
_TYPES = (DistBackendError, DistNetworkError, DistStoreError)
_WORDS = re.compile(
    r"gloo|connection (closed|reset|refused|aborted)|broken pipe|socket closed|timed out (waiting|connecting)"
    r"|caused collective operation|process group",
    re.IGNORECASE,
)


def belongs(error: BaseException, links: Links | None) -> bool:
    """Say whether the error shows that the group broke. ``links``: its connections, None while it forms.

    A plain RuntimeError does so only if it speaks of the group and one of the group's connections is broken.
    """
    if isinstance(error, _TYPES):
        return True
    if type(error) is not RuntimeError or not _WORDS.search(str(error)):
        return False
    return links is None or links.are_broken()
