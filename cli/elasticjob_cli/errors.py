# SPDX-License-Identifier: Apache-2.0
"""Errors for people: a sentence, and the exit code that docs/cli.md lists."""

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes. 2, for a wrong command line, is also click's."""

    DONE = 0
    REFUSED = 1
    WRONG_COMMAND_LINE = 2
    NOT_FOUND = 3
    DEADLINE = 4
    JOB_ENDED = 5
    INTERRUPTED = 130


class CliError(Exception):
    """An error whose text is the sentence to print."""

    def __init__(self, sentence: str, code: Exit = Exit.REFUSED) -> None:
        super().__init__(sentence)
        self.code = code
