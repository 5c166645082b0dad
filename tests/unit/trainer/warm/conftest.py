# SPDX-License-Identifier: Apache-2.0
"""An agent on paper: it prestarts real processes, and starts others in the ordinary way."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticjob_torch.warm.orders import LEARN
from elasticjob_torch.warm.pool import Pool
from elasticjob_torch.warm.process import Start
from support.waiting import exit_code, wait_until

TRAINER = Path(__file__).parents[4] / "trainer"
SECONDS = 120.0  # a process that imports


class Agent:
    """Starts `script` as torch's agent would; `log` has what its pool told."""

    def __init__(self, folder: Path, log: pytest.LogCaptureFixture) -> None:
        self.folder, self.log = folder, log
        (folder / "script").mkdir()
        (folder / "library").mkdir()
        self.script = folder / "script" / "train.py"
        self.pool = Pool(["library"])
        self.output = folder / "output"

    def library(self, text: str, name: str = "library") -> None:
        """A module that is not the script's."""
        (self.folder / "library" / f"{name}.py").write_text(text)

    def start(self, *arguments: str, **environment: str) -> Start:
        given = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{TRAINER}:{self.folder / 'library'}",
            "ELASTICJOB_AGENT": f"{os.getpid()}:1:run",
            "LOCAL_RANK": "0",
            "RANK": "3",
            "TORCHELASTIC_ERROR_FILE": str(self.folder / "error.json"),
            **environment,
        }
        command = arguments or (str(self.script),)
        file = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            return Start.now((sys.executable, "-u", *command), given, (file, file)).kept()
        finally:
            os.close(file)

    def prestart(self, start: Start) -> subprocess.Popen[bytes]:
        """Prestart a process and wait until its imports are done."""
        self.pool.start(0, start)
        self.pool.watch()
        self.until(lambda: self._is_over(), "a prestarted process with its imports done")
        prestarted = self.pool._prestarted.get(0)
        return prestarted.popen if prestarted else None  # type: ignore[return-value]

    def ordinary(self, start: Start, learn: str = "") -> str:
        """Run the script to its end in the ordinary way; return what it printed."""
        environment = {**start.environment, "ELASTICJOB_START": "here", **({LEARN: learn} if learn else {})}
        self.output.write_text("")
        command = start.arguments
        with subprocess.Popen(
            command, env=environment, stdout=start.outputs[0], stderr=start.outputs[1], start_new_session=True
        ) as process:
            exit_code(process, SECONDS)
        return self.output.read_text()

    def warm(self, start: Start) -> str:
        """The same with the prestarted process."""
        self.output.write_text("")
        process = self.pool.take(0, start)
        assert process is not None, self.told()
        exit_code(process, SECONDS)
        return self.output.read_text()

    def told(self) -> str:
        return "\n".join(record.getMessage() for record in self.log.records)

    def until(self, met: Callable[[], Any], what: str) -> None:
        wait_until(what, met, SECONDS, seen=self.told)

    def heard(self, words: str) -> None:
        self.until(lambda: words in self.told(), repr(words))

    def _is_over(self) -> bool:
        prestarted = self.pool._prestarted.get(0)
        return prestarted is None or bool(prestarted.modules)


@pytest.fixture
def agent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Agent]:
    caplog.set_level("INFO")
    made = Agent(tmp_path, caplog)
    yield made
    made.pool.close()


def read(text: str) -> Any:
    """The JSON in the last line of an output."""
    return json.loads(text.splitlines()[-1])
