# SPDX-License-Identifier: Apache-2.0
"""What `make check` chooses to run after a change, and that it leaves out nothing without saying so."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.doc_pages import ROOT

sys.path.append(str(ROOT))
from hack.check.changes import NoSuchCommit, tree
from hack.check.choice import Change, Choice, choose
from hack.check.functions import AT_IMPORT, changed
from hack.check.record import File, Function, Ran, Record
from hack.check.uses import Packages, distances, uses_of

MODULE = """
import json
import os
from members import one, two
LIMIT = 1
class Job(Model):
    size: int = 1
    def grow(self, by=1):
        return os.name
    @property
    def name(self):
        return two
class Plain:
    def call(self):
        return LIMIT
def outer():
    def inner():
        return one
    return inner
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("os.name", "os.sep", {"Job.grow"}),
        ("by=1", "by=2", {"Job.grow"}),
        ("return one", "return  one  # why", set()),
        ("return one", "return one + 1", {"outer"}),
        ("return two", "return 2", {"Job.name"}),
        ("@property", "@cached_property", {"Job.name", AT_IMPORT}),
        ("size: int = 1", "size: int = 2", {AT_IMPORT}),
        ("Job(Model)", "Job(Other)", {AT_IMPORT}),
        ("LIMIT = 1", "LIMIT = 2", {AT_IMPORT, "Plain.call"}),
        ("import os", "import os, re", set()),
        ("import os", "import ospath as os", {"Job.grow"}),
        ("import one, two", "import two", {"outer"}),
        ("def outer", "def later(): ...\ndef outer", set()),  # nobody calls it yet
        ("    def call", "    def later(self): ...\n    def call", set()),
        ("    def call", "    def __len__(self): ...\n    def call", {"Plain.__len__"}),  # Python calls it
        ("    def grow", "    def later(self): ...\n    def grow", {"Job.later"}),  # Model may call it
        ("def outer", "def other", {"outer"}),
    ],
)
def test_what_changed_is_told_by_function(old: str, new: str, expected: set[str]) -> None:
    assert old in MODULE
    assert changed(MODULE, MODULE.replace(old, new)) == expected


NOW = {
    "core/lib/__init__.py": "",
    "core/lib/low.py": "def low(): return 1\ndef other(): return 2\nLIMIT = 3\n",
    "core/lib/high.py": "from lib.low import low\ndef high(): return low()\n",
    "tests/support/scenes.py": "FOLDER = ROOT / 'unit' / 'scenes'\n",
    "tests/conftest.py": "",
    "tests/unit/conftest.py": "import support.helped\n",
    "tests/support/helped.py": "",
    "tests/unit/test_low.py": "from lib import low\ndef test_low(): low.low()\ndef test_other(): low.other()\n",
    "tests/unit/test_high.py": "from lib.high import high\ndef test_high(): high()\n",
    "tests/unit/test_page.py": "PAGE = ROOT / 'docs' / 'page.md'\ndef test_page(): ...\n",
    "tests/unit/test_scene.py": "import support.scenes\ndef test_scene(): ...\n",
    "tests/unit/test_process.py": "CODE = 'import lib.high; lib.high.high()'\ndef test_process(): run(CODE)\n",
}
OTHERS = ["docs/page.md", "docs/other.md", "tests/unit/scenes/one.json", "pyproject.toml"]
TESTS = [path for path in NOW if path.startswith("tests/unit/test_")]
LOW, HIGH, PROCESS = (f"tests/unit/test_{name}.py" for name in ("low", "high", "process"))


def record(texts: dict[str, str] = NOW, outside: frozenset[Function] = frozenset()) -> Record:
    low, other = Function("core/lib/low.py", "low"), Function("core/lib/low.py", "other")
    high = Function("core/lib/high.py", "high")
    tests = {
        f"{LOW}::test_low": Ran(0.1, True, frozenset({low, Function(LOW, "test_low")})),
        f"{LOW}::test_other": Ran(0.1, True, frozenset({other, Function(LOW, "test_other")})),
        f"{HIGH}::test_high": Ran(0.1, True, frozenset({low, high, Function(HIGH, "test_high")})),
        f"{PROCESS}::test_process": Ran(0.1, False, frozenset({Function(PROCESS, "test_process")})),
    }
    return Record({path: File.of(text) for path, text in texts.items()}, tests, outside)


def chosen(changes: dict[str, str | None], of: Record) -> Choice:
    """After changes of texts; None deletes a file."""
    before = {path: NOW[path] for path in changes if path in NOW}
    now = {path: text for path, text in (NOW | changes).items() if text is not None}
    uses = uses_of({**dict.fromkeys(before, ""), **now}, OTHERS, Packages({}))
    found = [
        Change(path, frozenset(changed(before[path], text))) if text and path in before else Change(path)
        for path, text in changes.items()
    ]
    return choose(found, uses, [path for path in TESTS if path in now], of, now, before)


def told(choice: Choice) -> set[str]:
    """Files of which every test runs, and tests."""
    return {one.rpartition("/")[2] for one, distance in choice.tests.items() if distance is not None} | {
        one.rpartition("/")[2] for one in choice.files if not any(test.startswith(one) for test in choice.tests)
    }


EMPTY = Record({}, {}, frozenset())
EDIT = {"core/lib/low.py": NOW["core/lib/low.py"].replace("return 1", "return 4")}


def test_without_a_record_the_imports_choose_and_the_nearest_come_first() -> None:
    choice = chosen(EDIT, EMPTY)
    assert choice.files == {LOW: 1, HIGH: 2, PROCESS: 2}
    assert choice.tests == {}


def test_the_record_leaves_out_tests_that_do_not_run_what_changed() -> None:
    choice = chosen(EDIT, record())
    assert told(choice) == {"test_low.py::test_low", "test_high.py::test_high", "test_process.py"}
    assert choice.tests[f"{LOW}::test_other"] is None


@pytest.mark.parametrize(
    ("new", "why"),
    [
        ("def low(): return 4\ndef other(): return 2\nLIMIT = 5\n", "what runs at import is no function"),
        (
            "class Low(Model):\n    def low(self): ...\n" + NOW["core/lib/low.py"],
            "others may call a new one",
        ),
    ],
)
def test_what_the_record_cannot_know_is_left_to_the_imports(new: str, why: str) -> None:
    assert {LOW, HIGH, PROCESS} == set(chosen({"core/lib/low.py": new}, record()).files), why
    assert chosen({"core/lib/low.py": new}, record()).tests[f"{LOW}::test_other"] == 1


def test_a_function_that_also_runs_outside_of_tests_is_left_to_the_imports() -> None:
    choice = chosen(EDIT, record(outside=frozenset({Function("core/lib/low.py", "low")})))
    assert choice.tests[f"{LOW}::test_other"] == 1


def test_a_test_that_ran_a_function_which_is_another_by_now_counts_as_unknown() -> None:
    old = NOW | {"core/lib/low.py": NOW["core/lib/low.py"].replace("return 2", "return high()")}
    change = {"core/lib/high.py": NOW["core/lib/high.py"].replace("low()", "low() + 1")}
    assert told(chosen(change, record())) == {"test_high.py::test_high", "test_process.py"}
    change |= {"tests/unit/test_low.py": NOW[LOW].replace("from lib", "import lib.high\nfrom lib")}
    choice = chosen(change, record(old))
    assert f"{LOW}::test_other" not in choice.tests  # so the file's distance holds for it
    assert choice.files[LOW] == 0


def test_a_new_test_in_a_changed_file_runs_and_comes_first() -> None:
    choice = chosen({LOW: NOW[LOW] + "def test_new(): ...\n"}, record())
    assert choice.files == {LOW: 0}
    assert set(choice.tests.values()) == {None}  # the others say what they said


def test_users_of_a_deleted_module_run() -> None:
    assert set(chosen({"core/lib/high.py": None}, EMPTY).files) == {HIGH, PROCESS}
    assert told(chosen({"core/lib/high.py": None}, record())) == {"test_high.py::test_high", "test_process.py"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("docs/page.md", {"test_page.py": 1}),
        ("docs/other.md", {"test_page.py": 4}),
        ("tests/unit/scenes/one.json", {"test_scene.py": 5}),
        ("tests/support/helped.py", {Path(one).name: 2 for one in TESTS}),
        ("pyproject.toml", {Path(one).name: 2 for one in TESTS}),
    ],
)
def test_a_file_is_used_by_what_imports_or_names_it(path: str, expected: dict[str, int]) -> None:
    found = distances(uses_of(NOW, OTHERS, Packages({})), path)
    assert {Path(one).name: distance for one, distance in found.items() if one in TESTS} == expected


CONFIGURATION = """
[tool.pytest]
pythonpath = ["core"]
[tool.ruff]
exclude = ["hack"]
[tool.coverage.run]
source = ["core", "tests"]
relative_files = true
"""


ENDLESS = """
import threading
def test_low():
    try:
        threading.Event().wait(600)
    except BaseException:
        raise ValueError("what interrupts it is taken for a fault")
"""
IN_CALLBACKS = """
import asyncio, time
def test_low():
    loop = asyncio.new_event_loop()
    for _ in range(20):
        loop.call_soon(time.sleep, 1)
    loop.call_soon(loop.stop)
    try:
        loop.run_forever()
    finally:
        loop.close()
"""

SLOW_ONCE = """
from pathlib import Path
from support.waiting import Deadline
def test_low():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        raise Deadline("a slow machine", 1)
def test_other(): ...
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small project with the check of this one."""
    shutil.copytree(ROOT / "hack" / "check", tmp_path / "hack" / "check")
    shutil.copy(ROOT / ".gitignore", tmp_path)
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION)
    for part in ("operator", "sidecar", "cli", "trainer"):
        (tmp_path / part).mkdir()
        (tmp_path / part / f"{part}_part.py").touch()
    for path, text in {
        "core/lib/__init__.py": "",
        "core/lib/low.py": "def low() -> int:\n    return 1\n\n\ndef other() -> int:\n    return 2\n",
        LOW: "from lib import low\n\n\ndef test_low():\n    assert low.low() > 0\n\n\n"
        "def test_other():\n    assert low.other() > 0\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=me", "-c", "user.email=me@example.com", *words], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "some")


def run(checkout: Path, module: str, *options: str, path: str = "") -> tuple[int, str]:
    environment = os.environ | {"ELASTICJOB_CACHE": str(checkout / "build" / "cache"), "PYTHONPATH": path}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    words = [sys.executable, "-m", module, *options]
    done = subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_run_tells_what_it_left_out_and_what_failed(checkout: Path) -> None:
    code, text = run(checkout, "hack.check.measure")
    assert code == 0, text
    low = checkout / "core" / "lib" / "low.py"
    low.write_text(low.read_text().replace("return 1", "return 'one'"))
    code, text = run(checkout, "hack.check")
    assert code == 1, text
    last = text.splitlines()[-1]
    assert last.startswith("check: FAILED (ruff, mypy, tests) in "), text
    assert last.endswith("1 of 1 unit tests that the change may concern ran"), text
    choice = checkout / "build" / "check" / "chosen.json"
    (checkout / LOW).write_text(ENDLESS)
    known = {f"{LOW}::test_low": 1e9}
    for no_time in ({"deadline": 0, "least": 0}, {"least": 1, "seconds": {}}, {"least": 10, "seconds": known}):
        choice.write_text(json.dumps(json.loads(choice.read_text()) | no_time))
        code, text = run(checkout, "pytest", "-n", "0", "-p", "hack.check.chosen", f"--chosen={choice}")
        assert code == 0, text
        assert json.loads(choice.with_suffix(".counts").read_text()) == {"chosen": 1, "ran": 0}, text


def test_a_callback_of_an_event_loop_is_interrupted_too(checkout: Path) -> None:
    (checkout / LOW).write_text(IN_CALLBACKS)
    choice = checkout / "chosen.json"
    choice.write_text(json.dumps({"files": {LOW: 0}, "tests": {}, "deadline": 0, "least": 1, "seconds": {}}))
    code, text = run(checkout, "pytest", "-n", "0", "-p", "hack.check.chosen", f"--chosen={choice}", LOW)
    assert code == 0, text
    assert json.loads(choice.with_suffix(".counts").read_text()) == {"chosen": 1, "ran": 0}, text


def test_what_runs_again_is_not_counted_anew(checkout: Path) -> None:
    (checkout / LOW).write_text(SLOW_ONCE)
    choice = checkout / "chosen.json"
    choice.write_text(json.dumps({"files": {LOW: 0}, "tests": {}, "deadline": 0, "least": 60, "seconds": {}}))
    plugins = ["-p", "support.second_run", "-p", "hack.check.chosen", f"--chosen={choice}"]
    code, text = run(checkout, "pytest", "-n", "0", *plugins, LOW, path=str(ROOT / "tests"))
    assert code == 0, text
    assert "1 timed out" in text
    assert json.loads(choice.with_suffix(".counts").read_text()) == {"chosen": 2, "ran": 2}, text


def test_changed_is_what_the_upstream_does_not_have_committed_or_not(tmp_path: Path) -> None:
    first, clone = tmp_path / "first", tmp_path / "clone"
    first.mkdir()
    git(first, "init", "-q", "-b", "main")
    for name in ("kept.py", "edited.py", "deleted.py", "page.md"):
        (first / name).write_text("1\n")
    commit(first)
    assert edited(first, "kept.py") == {"kept.py"}  # there is no upstream
    git(tmp_path, "clone", "-q", str(first), str(clone))
    assert edited(clone, "edited.py") == {"edited.py"}
    commit(clone)
    (clone / "deleted.py").unlink()
    assert edited(clone, "new.py") == {"edited.py", "deleted.py", "new.py"}
    assert set(tree(clone, "HEAD").changed) == {"deleted.py", "new.py"}
    commit(first)
    git(clone, "fetch", "-q")
    found = tree(clone, "origin/main")  # what was done there since is not ours
    assert found.changed == {"edited.py", "deleted.py", "new.py"}
    assert found.before == {"edited.py": "1\n", "deleted.py": "1\n"}
    assert found.now.keys() == {"kept.py", "edited.py", "new.py"}
    with pytest.raises(NoSuchCommit, match="SINCE=nothing: "):
        tree(clone, "nothing")


def edited(folder: Path, name: str) -> set[str]:
    (folder / name).write_text("2\n")
    return set(tree(folder, "").changed)


def test_help_shows_every_target_in_a_group() -> None:
    makefile = (ROOT / "Makefile").read_text()
    found = set(re.findall(r"^([a-z0-9-]+):", makefile, re.M)) - {"help"}
    targets = {target for target in found if not target.startswith("lint-")}  # those are the checks of `make lint`
    words = ["make", "--no-print-directory", "help"]
    full = subprocess.run([*words, "ALL=1"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([a-z0-9-]+) +\S", full, re.M)) == targets
    short = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert targets <= set(re.findall(r"[a-z0-9-]+", short.partition("All (")[2]))
