# SPDX-License-Identifier: Apache-2.0
"""Python imports this at its start: it keeps a training process's exception, has it write its stacks when its agent
asks, then makes room for the one it hides.

Where a job has warm restart it also starts what is to be prestarted, prestarts, and learns (`elasticjob_torch.warm`).
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _start() -> None:
    if "TORCHELASTIC_ERROR_FILE" in os.environ:
        from elasticjob_torch.agent.record import record_exception

        record_exception()
        _hear_agent()
    if os.environ.get("ELASTICJOB_WARM_RESTART") in ("Auto", "Enabled") and "ELASTICJOB_AGENT" not in os.environ:
        from elasticjob_torch.warm.ahead import begin

        begin(_leave_mark)
    file = os.environ.pop("ELASTICJOB_LEARN", "")
    _customize()
    if file:
        from elasticjob_torch.warm.learning import learn

        learn(file)


def _prestart() -> None:
    try:
        from elasticjob_torch.agent.record import record_exception
        from elasticjob_torch.warm.prestarted import prestart

        _hear_agent()
        prestart(_customize, record_exception)
    except BaseException:
        os._exit(1)  # without its orders the script must not run


def _hear_agent() -> None:
    from elasticjob_torch.agent.stacks import write_stacks_when_asked

    write_stacks_when_asked()


def _leave_mark(run_id: str) -> None:
    from elasticjob_torch.agent.orphans import leave_mark

    leave_mark(run_id)


def _customize() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    others = [folder for folder in sys.path if os.path.abspath(folder) != here]
    hidden = PathFinder.find_spec("sitecustomize", others)
    if hidden is not None and hidden.loader is not None:
        sys.modules["sitecustomize"] = module_from_spec(hidden)
        hidden.loader.exec_module(sys.modules["sitecustomize"])


if "ELASTICJOB_PRESTARTED" in os.environ:
    _prestart()
else:
    _start()
