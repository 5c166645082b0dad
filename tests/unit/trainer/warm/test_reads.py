# SPDX-License-Identifier: Apache-2.0
"""Which early imports a variable of a round makes unfit: those that take its value, and no others."""

import re
import sys
from dataclasses import replace

import pytest

HELPER = """
import os
def ask(name, default=None): return os.environ.get(name, default)
def everything(): return dict(os.environ)
"""


@pytest.fixture
def two_rounds(agent):
    """Prestart a process that imports `library`, and let it train with another rank; returns what the script has
    printed, and the process."""

    def run(library, shown="library.VALUE"):
        agent.library(HELPER, "helper")
        agent.library(library)
        agent.script.write_text(f"import os, library; print(os.getpid(), {shown})")
        process = agent.prestart(agent.start(RANK="1", MASTER_PORT="1111"))
        start = agent.start(RANK="2", MASTER_PORT="2222")
        if process is None:
            return agent.ordinary(start), process
        return agent.warm(start), process

    return run


@pytest.mark.parametrize(
    "library",
    [
        "import os; VALUE = os.environ.get('RANK')",
        "import os; VALUE = os.environ['RANK']",
        "import os; VALUE = os.getenv('RANK')",
        "import os; VALUE = os.getenvb(b'RANK').decode()",
        "import os; VALUE = os.environb[b'RANK'].decode()",
        "import os; VALUE = os.environ.setdefault('RANK', '0')",
        "import os; VALUE = next(os.environ[name.lower().upper()] for name in os.environ if name == 'RANK')",
    ],
)
def test_whoever_asks_for_a_value_by_its_name_is_imported_anew(agent, two_rounds, library):
    printed, process = two_rounds(library)
    assert printed == f"{process.pid} 2\n"
    agent.heard("training process 0 starts in the ordinary way: library reads RANK")
    agent.heard("not imported early any more: library (library reads RANK)")


def test_whoever_asks_by_way_of_a_helper_is_to_blame_with_it(agent, two_rounds):
    printed, process = two_rounds("import helper; VALUE = helper.ask('RANK')")
    assert printed == f"{process.pid} 2\n"
    agent.heard("not imported early any more: library (library, by way of helper, reads RANK)")


def test_the_standard_library_may_be_that_helper(agent, two_rounds):
    printed, process = two_rounds("import os; VALUE = os.path.expandvars('$RANK')")
    assert printed == f"{process.pid} 2\n"
    agent.heard("not imported early any more: library (library, by way of posixpath, reads RANK)")


KEPT = [
    "import os; VALUE = dict(os.environ)['RANK']",
    "import os; ALL = dict(os.environ)",
    "import os; ALL = os.environ.copy()",
    "import os; ALL = {**os.environ}",
    "import os; ALL = os.environ | {}",
    "import os; ALL = list(os.environ.values())",
    "import os; ALL = list(os.environb.values())",
    "import os; ALL = {name.lower(): os.environ[name] for name in os.environ}",
    "import os; ALL = {name: value for name, value in os.environ.items() if name.startswith('MASTER_')}",
    "import os\nclass Settings:\n    def __init__(self): self.all = [dict(os.environ)]\nSETTINGS = [Settings()]",
    "import os\ndef get(name, known=os.environ.copy()): return known[name]",
    "import functools, os\n@functools.lru_cache\ndef known(): return dict(os.environ)\nknown()",
    "import helper; ALL = helper.everything()",
    "import copy, os; ALL = copy.copy(dict(os.environ))",
    "import os\nfor name, value in sorted(os.environ.items()): pass",  # the loop's variable, of the last one
]


USED = [
    "import os; VALUE = any(value == '1' for name, value in os.environ.items() if name == 'RANK')",
    "import os; VALUE = [int(value) for name, value in os.environ.items() if name == 'RANK'][0]",
    "import os; VALUE = sum(len(value) for value in os.environ.values())",
    "import os; VALUE = sum(hash(value) for value in os.environ.values())",
    "import os; VALUE = [name for name, value in os.environ.items() if '/' in value]",
    "import os; VALUE = [name for name, value in os.environ.items() if isinstance(value, str)]",
    "import os; VALUE = [name for name, value in os.environ.items() if value]",
    "import os; VALUE = sorted(os.environ.values())",
    "import os; VALUE = [value.upper() for value in os.environ.values()]",
    "import os; VALUE = [f'{name}={value}' for name, value in os.environ.items()]",
    "import os; VALUE = '%s' % dict(os.environ)",
    "import os; VALUE = dict(os.environ) == dict(os.environ, RANK='1')",
    "import os, copy; VALUE = copy.deepcopy(dict(os.environ))",
    "import os, pickle; VALUE = pickle.dumps(dict(os.environ))",
    "import os, subprocess; VALUE = subprocess.check_output(['env'], env=os.environ.copy())",
    "import os\ntry: VALUE = int(dict(os.environ)['RANK'])\nexcept Exception: VALUE = 0",
    "import os\ntry: VALUE = int(dict(os.environ)['RANK'])\nexcept BaseException: VALUE = 0",
]

IN_C = [
    "import os, json; VALUE = json.dumps(dict(os.environ))",
    "import os; VALUE = '\\n'.join(os.environ.values())",
    "import os, re; VALUE = [name for name, value in os.environ.items() if re.match('[0-9]+$', value)]",
    "import os; VALUE = ' '.join(map(str.upper, os.environ.values()))",
    "import os; VALUE = [value for value in os.environ.values() if 'abc'.startswith(value)]",
]


@pytest.mark.parametrize(
    ("does", "library"),
    [
        *(("keeps", library) for library in KEPT),
        *(("uses", library) for library in USED),
        *((r"keeps|uses|raises TypeError", library) for library in IN_C),
    ],
)
def test_whoever_keeps_or_uses_a_value_of_a_list_is_not_imported_early(agent, two_rounds, does, library):
    _, process = two_rounds(library, shown="1")
    assert process is None
    said = rf"not imported early any more: library \(library(, by way of [\w.]+,)? ({does})\b"
    assert re.search(said, agent.told()), agent.told()


@pytest.mark.parametrize(
    "library",
    [
        "import os; VALUE = {name: value for name, value in os.environ.items() if name.startswith('PREFIX_')}",
        "import os; VALUE = {name[7:].lower(): os.environ[name] for name in os.environ if name.startswith('PREFIX_')}",
        "import os; VALUE = {n: v for n, v in os.environb.items() if n.startswith(b'PREFIX_')}",
        "import os; VALUE = [os.environ.get(name) for name in os.environ.keys() if 'PREFIX' in name]",
        "import os; VALUE = {n.lower(): v for n, v in os.environ.items()}.get('prefix_size')",  # as pydantic-settings
        "import os; VALUE = dict(os.environ).get('PREFIX_SIZE')",
        "import os\ndef late(): return dict(os.environ)\nVALUE = late()['PATH'] and 1",
        "import helper; VALUE = helper.everything().get('PREFIX_SIZE')",
        "import os; VALUE = sorted(os.environ)",
        "import os; VALUE = len(os.environ)",
        "import os; VALUE = 'RANK' in list(os.environ)",
        "import os\nclass Loop: pass\nloop = Loop(); loop.me, loop.all = loop, dict(os.environ); del loop; VALUE = 1",
        "import os; VALUE = helper = os.environ.get('PATH')",
    ],
)
def test_whoever_lists_the_variables_and_keeps_none_of_the_rounds_starts_warm(agent, two_rounds, library):
    """Most look for names that begin with a prefix of their own."""
    start = agent.start(RANK="2", MASTER_PORT="2222")
    printed, process = two_rounds(library)
    assert process is not None, agent.told()
    assert printed.split(None, 1)[1] == agent.ordinary(start).split(None, 1)[1]
    agent.heard("training process 0 starts warm")
    assert "ordinary" not in agent.told()


STANDARD = (
    "asyncio ctypes.util concurrent.futures logging.config multiprocessing.pool platform site subprocess sysconfig"
)


@pytest.mark.parametrize("libraries", [STANDARD, "click", "rich.console", "pydantic", "yaml", "hypothesis"])
def test_real_libraries_start_warm(agent, two_rounds, libraries):
    """Those that are installed; the contract tests have tqdm itself."""
    for name in libraries.split():
        pytest.importorskip(name)
    printed, process = two_rounds(f"import {', '.join(libraries.split())}; VALUE = 1")
    assert process is not None, agent.told()
    assert printed == f"{process.pid} 1\n"
    assert "ordinary" not in agent.told()


def test_a_sitecustomize_that_lists_the_variables_starts_warm(agent, two_rounds):
    agent.library("import os; OWN = {n: v for n, v in os.environ.items() if n.startswith('OWN_')}", "sitecustomize")
    printed, process = two_rounds("VALUE = 1")
    assert printed == f"{process.pid} 1\n"
    assert "ordinary" not in agent.told()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import os; ALL = dict(os.environ)", "sitecustomize keeps LOCAL_RANK out of a list of all variables"),
        ("import os; RANK = os.environ['RANK']", "sitecustomize reads RANK"),
    ],
)
def test_a_sitecustomize_that_keeps_a_value_turns_warm_restart_off(agent, two_rounds, text, why):
    agent.library(text, "sitecustomize")
    two_rounds("VALUE = 1")
    agent.heard(f"processes start in the ordinary way from now on: {why}")


def test_only_what_needs_the_module_that_has_read_the_rank_is_imported_later(agent):
    """And all of it is found at once: the first round with another rank is the only one that starts in the ordinary
    way."""
    agent.library("import os; RANK = os.environ['RANK']", "reader")
    agent.library("import reader", "first")
    agent.library("import reader", "second")
    agent.library("import json", "third")
    agent.pool.give(["first", "second", "third"])
    agent.script.write_text("import first, second, third, reader; print(reader.RANK)")
    agent.prestart(agent.start(RANK="1"))
    assert agent.warm(agent.start(RANK="2")) == "2\n"
    agent.heard("not imported early any more: first (reader reads RANK)")
    agent.prestart(agent.start(RANK="2"))
    agent.heard("not imported early any more: second (second imports reader, which is to be imported later)")
    agent.prestart(agent.start(RANK="2"))
    assert agent.warm(agent.start(RANK="3")) == "3\n"
    agent.heard("training process 0 starts warm")


def test_what_is_below_an_import_that_is_left_out_is_left_out_with_it(agent):
    package = agent.folder / "library" / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import os; RANK = os.environ['RANK']")
    (package / "part.py").write_text("")
    agent.library("")
    agent.pool.give(["package", "package.part", "library"])
    agent.script.write_text("import package.part; print(package.RANK)")
    agent.prestart(agent.start(RANK="1"))
    assert agent.warm(agent.start(RANK="2")) == "2\n"
    agent.heard("not imported early any more: package (package reads RANK)")
    assert agent.pool._learned.imports(0) == ["library"]


def test_a_guess_that_was_wrong_leaves_no_import_out(agent):
    """Nobody knows the rank before the first round; the next process is given it from the start."""
    agent.library("import os; RANK = os.environ['RANK']")
    agent.script.write_text("import library; print(library.RANK)")
    agent.prestart(replace(agent.start(RANK="0"), is_guessed=True))
    assert agent.warm(agent.start(RANK="2")) == "2\n"
    agent.heard("training process 0 starts in the ordinary way: library reads RANK")
    agent.until(lambda: not agent.pool._handed.processes, "its agent to let it go")
    agent.prestart(agent.start(RANK="2"))
    assert agent.warm(agent.start(RANK="2", MASTER_PORT="2222")) == "2\n"
    agent.heard("training process 0 starts warm")


def test_nothing_of_it_is_left_for_the_script(agent, two_rounds):
    shown = "os._Environ.__getitem__.__module__, os._Environ.__len__.__qualname__, 'gc' in __import__('sys').modules"
    printed, process = two_rounds("import os; VALUE = dict(os.environ).get('PREFIX')", shown)
    assert printed == f"{process.pid} os _Environ.__len__ {'gc' in sys.modules and False}\n"
