# SPDX-License-Identifier: Apache-2.0
"""A reader's shell: commands of a page are typed into it block by block, and it keeps directory and variables."""

import os
from collections.abc import Mapping
from pathlib import Path

from support.waiting import run

KEEPING = """\
[ ! -e "{state}" ] || . "{state}"
{text}
{{ export -p; printf 'cd %q\\n' "$PWD"; }} > "{state}"
"""


class Reader:
    """`programs`: scripts that this reader's shell finds before all others, by name."""

    def __init__(self, folder: Path, environment: Mapping[str, str], programs: Mapping[str, str]) -> None:
        self._folder = folder
        self._state = folder / ".reader"
        own = folder / ".bin"
        own.mkdir()
        for name, script in programs.items():
            (own / name).write_text(f"#!/bin/sh\n{script}")
            (own / name).chmod(0o755)
        self._environment = {**environment, "PATH": f"{own}{os.pathsep}{environment['PATH']}"}

    def run(self, text: str, seconds: float) -> str:
        """The output of a block all of whose commands succeed. Raises AssertionError with what they said, Deadline."""
        script = KEEPING.format(state=self._state, text=text)
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = run(command, seconds, cwd=self._folder, env=self._environment)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout
