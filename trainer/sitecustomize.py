"""Python imports this at its start: it keeps a training process's exception, then makes room for the one it hides."""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

if "TORCHELASTIC_ERROR_FILE" in os.environ:
    from elasticjob_torch.agent.record import record_exception

    record_exception()

_here = os.path.dirname(os.path.abspath(__file__))
_others = [folder for folder in sys.path if os.path.abspath(folder) != _here]
_hidden = PathFinder.find_spec("sitecustomize", _others)
if _hidden is not None and _hidden.loader is not None:
    sys.modules["sitecustomize"] = module_from_spec(_hidden)
    _hidden.loader.exec_module(sys.modules["sitecustomize"])
