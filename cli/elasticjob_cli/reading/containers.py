# SPDX-License-Identifier: Apache-2.0
"""The messages of kubelet and scheduler about a pod, shortened to one line."""

from elasticjob.text import plain

TEXT_LENGTH = 400


def said(*parts: str | None) -> str:
    """The non-empty `parts`, on one line of limited length, without a final full stop."""
    text = plain(": ".join(part.strip() for part in parts if part and part.strip()), TEXT_LENGTH)
    return text.rstrip(".")
