# SPDX-License-Identifier: Apache-2.0
"""What a training process notes of its script's imports, and where that ends."""

import json

import pytest

from elasticjob_torch.warm.learning import read_end, read_learned


@pytest.fixture
def learned(agent):
    """Run a script in the ordinary way; returns what was learned, and what it printed."""
    for name in ("first", "second", "third"):
        agent.library("import json", name)
    agent.library("import own_part", "needs_own")
    agent.library("import first, threading; thread = threading.Thread(); thread.start(); thread.join()", "threads")
    agent.library("import os; os.environ['SET_BY_IMPORT'] = '1'", "sets")
    agent.library("import subprocess; subprocess.run(['true'])", "runs")
    agent.library("import importlib\ndef load(): return importlib.import_module('second')", "lazy")
    (agent.script.parent / "own_part.py").write_text("import second")
    path = agent.folder / "learned"

    def run(script):
        agent.script.write_text(script)
        printed = agent.ordinary(agent.start(), str(path))
        ours = ("first", "second", "third", "needs_own", "threads", "sets", "runs", "lazy", "own_part")
        return [name for name in read_learned(path.read_text()) if name in ours], printed

    return run


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("import first\nimport third, second", ["first", "third", "second"]),
        ("import threads\nimport sets\nimport runs\nimport third", ["threads", "sets", "runs", "third"]),
        ("import own_part\nimport third", ["second", "third"]),
        ("import lazy\nlazy.load()", ["lazy"]),  # it imports nothing itself
        ("try:\n    import missing\nexcept ImportError:\n    import first", ["first"]),
        ("import first, elasticjob_torch\nelasticjob_torch.current()\nimport third", ["first", "third"]),
    ],
)
def test_the_outermost_imports_in_their_order(learned, script, names):
    assert learned(script) == (names, "")


@pytest.mark.parametrize(
    "statement",
    [
        "os.environ['A'] = '1'",
        "del os.environ['HOME']",
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "os.waitpid(os.fork() or os._exit(0), 0)",
        "subprocess.run(['true'])",
        "os.system('true')",
        "import needs_own",
        "sys.modules['torch.cuda'] = types.SimpleNamespace(_initialized=True)",
    ],
)
def test_it_ends_before_what_makes_order_matter(learned, statement):
    script = f"import os, subprocess, sys, threading, types\nimport first\n{statement}\nimport second"
    assert learned(script)[0] == ["first"]


HIDING = "import sys\nsys.path.insert(0, {!r})\nimport first\nimport second\nimport third"


@pytest.mark.parametrize("below", ["vendored", "script/vendored"])
def test_it_ends_where_the_script_hides_a_library_by_another_that_it_brings_along(learned, agent, below):
    """An early import that needs this library would get the one that is hidden."""
    folder = agent.folder / below
    folder.mkdir()
    (folder / "second.py").write_text("")
    assert learned(HIDING.format(str(folder)))[0] == ["first"]
    assert read_end((agent.folder / "learned").read_text()) == "second hides another"


def test_it_goes_on_after_what_the_script_brings_along_and_hides_nothing(learned, agent):
    folder = agent.script.parent / "vendored"
    folder.mkdir()
    (folder / "brought.py").write_text("")
    assert learned(HIDING.format(str(folder)).replace("second", "brought"))[0] == ["first", "third"]


def test_nor_does_it_end_where_the_scripts_own_folder_hides_something(learned, agent):
    """No early import finds that: `gentle` sees to it."""
    (agent.script.parent / "second.py").write_text("")
    assert learned("import first\nimport second\nimport third")[0] == ["first", "third"]


def test_nor_by_a_plain_folder_of_its_own_that_the_interpreter_finds_at_its_start_too(learned, agent, monkeypatch):
    package = agent.script.parent / "plain_package"
    package.mkdir()
    (package / "part.py").write_text("")
    begin = agent.start

    def start():
        given = begin()
        path = f"{agent.script.parent}:{given.environment['PYTHONPATH']}"
        return begin(PYTHONPATH=path)

    monkeypatch.setattr(agent, "start", start)
    assert learned("import first\nimport plain_package.part\nimport third")[0] == ["first", "third"]


def test_the_script_sees_nothing_of_it(learned):
    seen = "[sorted(os.environ), [name for name in sys.modules if 'warm' in name]]"
    names, printed = learned(f"import json, os, sys\nimport first\nprint(json.dumps({seen}))")
    assert names == ["first"]
    environment, modules = json.loads(printed)
    assert (modules, [name for name in environment if "LEARN" in name]) == ([], [])


def test_a_process_of_its_own_learns_nothing(learned):
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import second'])"
    assert learned(f"import first\n{child}")[0] == ["first"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("first\nsecond\n", ["first", "second"]),
        ("first\nsec", ["first"]),  # killed while it wrote
        ("first\n-\nsecond\n", ["first"]),
        ("first\nsecond\n<\nthird\n", ["first"]),
        ("first\nsecond\nfirst\n", ["first", "second"]),
        ("first\n- os.putenv\nsecond\n", ["first"]),
        ("first\nsecond\n< second imports own\nthird\n", ["first"]),
    ],
)
def test_what_a_file_says(text, names):
    assert list(read_learned(text)) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ""),
        ("first\n\n", ""),
        ("first\n- os.putenv\n", "os.putenv"),
        ("first\n< first imports own\n", "first imports own"),
        ("first\n- os.put", ""),
    ],
)
def test_why_a_file_ends(text, why):
    assert read_end(text) == why


def test_the_state_in_which_an_import_began():
    assert read_learned("first a.b\nsecond\nfirst c.d\n") == {"first": "a.b", "second": ""}
