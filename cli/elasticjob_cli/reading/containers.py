# SPDX-License-Identifier: Apache-2.0
"""What kubelet and scheduler say of a pod, as people read it here: on one line, and bounded."""

from elasticjob.text import plain

TEXT_LENGTH = 400


def said(*parts: str | None) -> str:
    """What is there of `parts`, on one line and bounded, without a stop at the end."""
    text = plain(": ".join(part.strip() for part in parts if part and part.strip()), TEXT_LENGTH)
    return text.rstrip(".")
