# SPDX-License-Identifier: Apache-2.0
"""Takes its defaults from the variables that begin with a prefix of its own, as tqdm does.

tqdm itself is in the tests only where the examples' packages are.
"""

import functools
import inspect
import os


def from_environment(prefix):
    """Let keywords of a function have defaults from the environment, in the types that they have by themselves."""
    given = {name.removeprefix(prefix).lower(): text for name, text in os.environ.items() if name.startswith(prefix)}

    def decorate(function):
        defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
        return functools.partial(
            function, **{name: type(defaults[name])(text) for name, text in given.items() if name in defaults}
        )

    return decorate


@from_environment("EARLY_PREFIX_")
def bar(width=10, unit="steps"):
    """Draw something."""
    return [width, unit]


SEEN = [bar(), sorted(os.environ)]
