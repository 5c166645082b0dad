# SPDX-License-Identifier: Apache-2.0
"""The logs of operator and sidecar: text for people, or one JSON object per line for log collectors.

Context (job, round, worker) is noted once, and then appears in every JSON line of the same task and of the tasks it
starts.
"""

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

from elasticjob.text import escaped

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = ("text", "json")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_fields: ContextVar[dict[str, object] | None] = ContextVar("log_fields", default=None)


def set_up(level: str, format: Format) -> None:
    """Log records of at least `level` to stderr. The process's main function calls it once."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def begin(**fields: object) -> None:
    """Set the context of this task's lines to `fields`."""
    _fields.set(dict(fields))


def note(**fields: object) -> None:
    """Add `fields` to the context, in all tasks that share the last `begin`. Without a `begin` it does nothing."""
    noted = _fields.get()
    if noted is not None:
        noted.update(fields)


class TextFormatter(logging.Formatter):
    """One line per message, with an indented traceback: quoted text cannot forge a line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n  ".join(map(escaped, super().formatException(ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger`, `message`, the context, the record's own `fields`, and the `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        own: Mapping[str, object] = getattr(record, "fields", {})
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **(_fields.get() or {}),
            **own,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
