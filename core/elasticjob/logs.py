# SPDX-License-Identifier: Apache-2.0
"""How operator and sidecar write their logs: as text for people, or as one JSON object a line for what gathers logs.

What a line is about (job, round, worker) is noted once and then stands in every JSON line of the same task, and of
those that it starts.
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
    """Log what is at least `level` to stderr. To be called once, by the process's main function."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def begin(**fields: object) -> None:
    """From now on this task's lines are about `fields`, and nothing else."""
    _fields.set(dict(fields))


def note(**fields: object) -> None:
    """... and about `fields` too, in all tasks that share the last `begin`; without one nobody asks for them."""
    noted = _fields.get()
    if noted is not None:
        noted.update(fields)


class TextFormatter(logging.Formatter):
    """One line for one message, and an indented traceback: what others wrote into them forges no line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n  ".join(map(escaped, super().formatException(ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger`, `message`, what was noted, what the record has as `fields`, and the `exception`."""

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
