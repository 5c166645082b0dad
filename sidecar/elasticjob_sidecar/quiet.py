"""A trouble that lasts is told when it starts, when it changes, once a minute, and when it is over."""

import asyncio
import logging

REPEAT_SECONDS = 60.0


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
