# SPDX-License-Identifier: Apache-2.0
"""Which exception is on its way through a process, and which is only handled where it was caught."""

import contextlib
import sys

import pytest

from elasticjob_torch.agent.on_its_way import on_its_way

RAISES = "def fails():\n    raise ValueError('no such data')\n"
GOES_ON = {
    "a finally": "try:\n    fails()\nfinally:\n    look()",
    "a finally further up": "def f():\n    fails()\ntry:\n    f()\nfinally:\n    look()",
    "a with": "with Looks():\n    fails()",
    "an except that raises it again": "try:\n    fails()\nexcept ValueError:\n    look()\n    raise",
    "an except that raises another": "try:\n    fails()\nexcept ValueError as e:\n    look()\n    raise OSError from e",
    "the except of another": "try:\n    fails()\nexcept OSError:\n    pass\nfinally:\n    look()",
    "a finally in which something else is handled": (
        "try:\n    fails()\nfinally:\n    try:\n        {}['key']\n    except KeyError:\n        look()"
    ),
    "a finally in an except": (
        "try:\n    {}['key']\nexcept KeyError:\n    try:\n        fails()\n    finally:\n        look()"
    ),
}
HANDLED = {
    "an except": "try:\n    fails()\nexcept ValueError:\n    look()",
    "any exception": "try:\n    fails()\nexcept:\n    look()",
    "a call from there": "def g():\n    look()\ntry:\n    fails()\nexcept ValueError:\n    g()",
    "two excepts": (
        "try:\n    fails()\nexcept ValueError:\n    try:\n        {}['key']\n    except KeyError:\n        look()"
    ),
    "a finally of a try that is over": (
        "try:\n    try:\n        fails()\n    except ValueError:\n        pass\nfinally:\n    look()"
    ),
    "nothing": "look()",
}


@pytest.fixture
def found(tmp_path):
    """What is on its way where a script looks."""

    def run(script):
        seen = []

        def look():
            seen.append(on_its_way(sys.exc_info()[1], sys._getframe()))

        class Looks:
            def __enter__(self):
                pass

            def __exit__(self, *_):
                look()

        file = tmp_path / "script.py"
        file.write_text(RAISES + script)
        with contextlib.suppress(ValueError, OSError):
            exec(compile(file.read_text(), str(file), "exec"), {"look": look, "Looks": Looks})
        (error,) = seen
        return None if error is None else f"{type(error).__name__}: {error}"

    return run


@pytest.mark.parametrize("script", GOES_ON.values(), ids=GOES_ON)
def test_what_goes_on(found, script):
    assert found(script) == "ValueError: no such data"


@pytest.mark.parametrize("script", HANDLED.values(), ids=HANDLED)
def test_what_is_handled(found, script):
    assert found(script) is None
