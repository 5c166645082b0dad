"""What could fill the log. A trouble that lasts is told when it starts, when it changes, once a minute, and when it is
over; of what strangers cause, the first ten in a minute, and then how many more."""

import asyncio
import logging

REPEAT_SECONDS = 60.0
TOLD_AT_ONCE = 10


class Quiet:
    def __init__(self, log: logging.Logger, repeat: float = REPEAT_SECONDS) -> None:
        self._log, self._repeat = log, repeat
        self._trouble = ""
        self._told = 0.0

    def trouble(self, sentence: str) -> None:
        now = asyncio.get_running_loop().time()
        if sentence != self._trouble or now - self._told >= self._repeat:
            self._log.warning(sentence)
            self._trouble, self._told = sentence, now

    def well(self, sentence: str) -> None:
        if self._trouble:
            self._log.info(sentence)
            self._trouble = ""


class Sparing:
    """Tells the first few of `what` in a minute, and at its end how many more there were."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log, self._what = log, what
        self._said = 0

    def info(self, message: str, *values: object) -> None:
        if self._said == 0:
            asyncio.get_running_loop().call_later(REPEAT_SECONDS, self._minute_is_over)
        self._said += 1
        if self._said <= TOLD_AT_ONCE:
            self._log.info(message, *values)

    def _minute_is_over(self) -> None:
        if (more := self._said - TOLD_AT_ONCE) > 0:
            self._log.info("%d more %s within %g s", more, self._what, REPEAT_SECONDS)
        self._said = 0
