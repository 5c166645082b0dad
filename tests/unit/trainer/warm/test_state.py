# SPDX-License-Identifier: Apache-2.0
"""What a script changes before an import is noticed, and ends what is imported early."""

import logging
import sys
import warnings
from types import SimpleNamespace

import pytest

from elasticjob_torch.warm import pool as pool_module
from elasticjob_torch.warm.orders import shared
from elasticjob_torch.warm.state import difference, fingerprint

CHANGES = {
    "the filters of warnings": "import warnings; warnings.simplefilter('ignore')",
    "logging": "import logging; logging.getLogger('noisy').setLevel('ERROR')",
    "standard output or error": "import sys; sys.stdout.reconfigure(write_through=False, errors='ignore')",
    "the recursion limit": "import sys; sys.setrecursionlimit(5000)",
    "the working directory": "import os; os.chdir('/')",
    "the locale": "import locale; locale.setlocale(locale.LC_ALL, 'C')",
    "functions, classes or constants of a library": "import colorsys; colorsys.rgb_to_hsv = print",
}


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("the filters of warnings", lambda patch: patch.setattr(warnings, "filters", [])),
        ("the filters of warnings", lambda patch: patch.setattr(warnings, "showwarning", logging._showwarning)),
        ("logging", lambda patch: patch.setattr(logging.root.manager, "disable", 50)),
        ("logging", lambda patch: patch.setattr(logging.root, "handlers", [logging.NullHandler()])),
        ("logging", lambda patch: patch.setattr(logging.getLogger("noisy"), "propagate", False)),
        ("standard output or error", lambda patch: patch.setattr(sys, "stderr", sys.__stdout__)),
        ("the working directory", lambda patch: patch.chdir("/")),
        (
            "torch's default type",
            lambda patch: patch.setitem(sys.modules, "torch", SimpleNamespace(get_default_dtype=lambda: "torch.half")),
        ),
    ],
)
def test_what_differs_is_named(monkeypatch, what, change):
    before = fingerprint()
    assert difference(before, fingerprint()) is None
    change(monkeypatch)
    assert difference(before, fingerprint()) == what


def test_modules_that_are_loaded_and_changed_by_nobody_make_no_difference(agent):
    agent.script.write_text(
        "import sys; sys.path.append(sys.argv[1])\n"
        "from elasticjob_torch.warm.state import fingerprint\n"
        "before = fingerprint()\n"
        "import locale, logging, warnings\n"
        "logging.getLogger('known')\n"
        "print(fingerprint() == before)"
    )
    assert agent.ordinary(agent.start(str(agent.script), str(agent.folder))) == "True\n"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(pool_module, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(pool_module, "_TICK_SECONDS", 0.02)
    monkeypatch.setattr(pool_module, "_REST", 0.0)


def trained(agent):
    """Let the script train once in the ordinary way; the pool learns from it."""
    start = agent.start()
    agent.ordinary(start, agent.pool.expects(0, start))
    agent.pool.watch()
    return start


def prestarted(agent):
    found = agent.pool._prestarted.get(0)
    return found is not None and found.modules and found.imports


@pytest.mark.parametrize("what", CHANGES)
def test_early_imports_end_where_the_script_changes_what_they_may_depend_on(agent, impatient, what):
    told = []
    agent.library("")
    agent.library("", "second")
    agent.script.write_text(f"import sys, library\n{CHANGES[what]}\nprint('second' in sys.modules)\nimport second")
    agent.pool.tell(lambda names: told.append(names) is None)
    start = trained(agent)
    agent.heard(f"the script has changed {what} by then")
    agent.until(lambda: prestarted(agent), "a prestarted process")
    assert "library" in prestarted(agent)
    assert agent.warm(start) == "False\n"
    agent.heard("training process 0 starts warm")
    assert not any("second" in names for names in told)
    assert agent.told().count("by then") == 1


@pytest.mark.parametrize(
    ("library", "own"),
    [
        ("import warnings; warnings.simplefilter('ignore')", ""),
        ("import colorsys; colorsys.rgb_to_hsv = print", ""),
        ("", "colorsys.added = print; colorsys._calls = 1"),
        ("import multiprocessing", "step = print"),  # which knows the script as __mp_main__, too
    ],
    ids=["settings", "a patch", "what the script adds", "the script's own"],
)
def test_what_an_import_changes_and_what_is_added_does_not_end_them(agent, impatient, library, own):
    told = []
    agent.library(library)
    agent.library("", "second")
    agent.script.write_text(
        f"import sys\nprint('second' in sys.modules)\nstep = len\nimport colorsys, library\n{own}\nimport second"
    )
    agent.pool.tell(lambda names: told.append(names) is None)
    start = trained(agent)
    agent.until(lambda: "second" in (prestarted(agent) or ()), "a prestarted process with both")
    agent.until(lambda: told, "both to be told")
    assert [name for name in told[0] if name in ("library", "second")] == ["library", "second"]
    assert agent.warm(start) == "True\n"


def test_what_is_prestarted_in_another_order_than_the_scripts_is_prestarted_anew(agent, impatient):
    agent.library("")
    agent.library("", "second")
    agent.script.write_text("import second, library")
    first = agent.prestart(agent.start())
    trained(agent)
    agent.until(
        lambda: [n for n in prestarted(agent) or () if n in ("library", "second")] == ["second", "library"], "both"
    )
    assert agent.pool._prestarted[0].popen.pid != first.pid


@pytest.mark.parametrize(
    ("states", "proven", "names"),
    [
        ({}, "", ["a", "b", "c"]),
        ({"a": "1", "b": "1", "c": "2"}, "", ["a", "b"]),
        ({"a": "1", "b": "2", "c": "1"}, "", ["a"]),
        ({"a": "1", "b": "2", "c": "2"}, "b", ["a", "b"]),
        ({"a": "1", "b": "2"}, "b", ["a", "b", "c"]),
        ({"b": "2"}, "", ["a"]),
        ({"a": "1", "b": "2", "c": "3"}, "abc", ["a", "b", "c"]),
    ],
)
def test_others_are_told_what_is_sound_without_states(states, proven, names):
    assert shared(["a", "b", "c"], states, proven) == names


def test_nothing_is_told_of_nothing():
    assert shared([], {}, "") == []
