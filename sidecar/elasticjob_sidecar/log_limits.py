# SPDX-License-Identifier: Apache-2.0
"""Bounds on what can fill the log.

`TroubleLog` logs a lasting trouble when it starts, when it changes, once a minute, and when it is over. `LimitedLog`
logs the first ten messages per minute that strangers cause, and then the number of the rest.
"""

import asyncio
import logging

REPEAT_SECONDS = 60.0
LOGGED_A_MINUTE = 10


class TroubleLog:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._trouble = ""
        self._logged_at = 0.0

    def warn(self, sentence: str) -> None:
        """It does not work, for the reason in `sentence`."""
        now = asyncio.get_running_loop().time()
        if sentence != self._trouble or now - self._logged_at >= REPEAT_SECONDS:
            self._log.warning(sentence)
            self._trouble, self._logged_at = sentence, now

    def over(self, sentence: str) -> None:
        """It works again. Logged only after a warning."""
        if self._trouble:
            self._log.info(sentence)
            self._trouble = ""


class LimitedLog:
    """Logs the first few of `what` in a minute, and at its end the number of the rest."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log, self._what = log, what
        self._count = 0

    def info(self, message: str, *values: object) -> None:
        if self._count == 0:
            asyncio.get_running_loop().call_later(REPEAT_SECONDS, self._minute_is_over)
        self._count += 1
        if self._count <= LOGGED_A_MINUTE:
            self._log.info(message, *values)

    def _minute_is_over(self) -> None:
        if (more := self._count - LOGGED_A_MINUTE) > 0:
            self._log.info("%d more %s within %g s", more, self._what, REPEAT_SECONDS)
        self._count = 0
