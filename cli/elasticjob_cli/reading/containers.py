"""What kubelet and scheduler say of a pod, as people read it here: on one line, and bounded."""

from elasticjob.objects import Object
from elasticjob.pods import end_before, ended, how_it_ended
from elasticjob.text import plain

TEXT_LENGTH = 400


def last_end(status: Object) -> Object | None:
    """How it ended last, be it now or before it was started again."""
    return ended(status) or end_before(status)


def told_end(end: Object | None) -> str:
    return how_it_ended(end) if end else ""


def said(*parts: str | None) -> str:
    """What is there of `parts`, on one line and bounded, without a stop at the end."""
    text = plain(": ".join(part.strip() for part in parts if part and part.strip()), TEXT_LENGTH)
    return text.rstrip(".")
