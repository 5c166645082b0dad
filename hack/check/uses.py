# SPDX-License-Identifier: Apache-2.0
"""Which file uses which: Python's imports, conftest.py, and files that a text names.

grimp reads the imports of packages. Files of no package (most tests, the scripts of hack/) are read here, as are those
that still import a module which is deleted. Any file is used by what names it in quotes. For one that is not Python, a
folder above it that is named so counts too, but stands farther away: by its path, or below tests/ by the name of the
last folder.
"""

import ast
import heapq
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

import grimp

# where Python looks for modules, as PYTHONPATH and pyproject.toml have it
ROOTS = ("core", "operator", "sidecar", "trainer", "cli", "tests", "bench", "hack", "")
FOR_ALL_TESTS = ("pyproject.toml", "locks/dev.txt", "tests/conftest.py")

IMPORTED, NAMED_FOLDER = 1, 4
QUOTED = re.compile(r"""["']([\w./*{}-]*\w[\w./*{}-]*)["']""")

Uses = dict[str, dict[str, int]]


def uses_of(texts: Mapping[str, str], others: Iterable[str], packages: "Packages") -> Uses:
    """`texts`: the Python files. `others`: all other files. Both may hold files that are deleted."""
    uses: Uses = defaultdict(dict)
    modules = {name: path for path in sorted(texts, reverse=True) for name in module_names(path)}
    for path, text in texts.items():
        imported = packages.imports.get(path)
        if imported is None or packages.may_miss(text):
            imported = {modules[name] for name in imports(text) if name in modules}
        for one in (*imported, *_run_before(path, texts)):
            uses[path][one] = IMPORTED
    for path, one, distance in _named(texts, [*texts, *others], modules):
        uses[path][one] = min(distance, uses[path].get(one, distance))
    for one in FOR_ALL_TESTS[:-1]:
        uses[FOR_ALL_TESTS[-1]][one] = IMPORTED
    return uses


class Packages:
    """The imports of the files that belong to a package, by path."""

    def __init__(self, imports: Mapping[str, set[str]], deleted: Iterable[str] = ()) -> None:
        self.imports = imports
        stems = "|".join(re.escape(PurePosixPath(path).stem) for path in deleted if path.endswith(".py"))
        self._missed = re.compile(rf"\b({stems})\b") if stems else None

    def may_miss(self, text: str) -> bool:
        """Whether the text may import a module that is deleted, of which grimp says nothing."""
        return bool(self._missed and self._missed.search(text))


def packages_of(paths: Iterable[str], cache: str, deleted: Iterable[str] = ()) -> Packages:
    """Asks grimp, which finds them on sys.path."""
    modules = {name: path for path in paths for name in module_names(path)}
    tops = sorted({name for name, path in modules.items() if path.endswith("__init__.py") and "." not in name})
    graph = grimp.build_graph(*tops, cache_dir=cache) if tops else grimp.ImportGraph()
    return Packages(
        {
            modules[module]: {modules[one] for one in graph.find_modules_directly_imported_by(module) if one in modules}
            for module in graph.modules
            if module in modules
        },
        deleted,
    )


def module_names(path: str) -> Iterator[str]:
    """The names under which a file can be imported."""
    parts = PurePosixPath(path).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    for root in ROOTS:
        if not root:
            yield ".".join(parts)
        elif parts[:1] == (root,) and len(parts) > 1:
            yield ".".join(parts[1:])


def imports(text: str) -> set[str]:
    """The modules that a file of no package imports, and modules that strings of it name, as `-m` or a patch does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for word in re.findall(r"\w+(?:\.\w+)*", node.value):
                parts = word.split(".")
                found |= {".".join(parts[:n]) for n in range(len(parts), 0, -1) if n > 1 or "_" in word}
    return found


def distances(uses: Uses, changed: str) -> dict[str, int]:
    """How far from the changed file each file stands that uses it, directly or through others."""
    users: dict[str, dict[str, int]] = defaultdict(dict)
    for user, used in uses.items():
        for one, distance in used.items():
            users[one][user] = distance
    found: dict[str, int] = {}
    ahead = [(0, changed)]
    while ahead:
        distance, path = heapq.heappop(ahead)
        if path not in found:
            found[path] = distance
            for user, more in users[path].items():
                heapq.heappush(ahead, (distance + more, user))
    return found


def _run_before(path: str, texts: Mapping[str, str]) -> Iterator[str]:
    """What Python and pytest run before a file: its packages, the conftest.py of its folders."""
    for folder in PurePosixPath(path).parents:
        for name in ("__init__.py", "conftest.py"):
            one = str(folder / name)
            if one in texts and one != path and (name == "__init__.py" or path.startswith("tests/")):
                yield one


def _named(
    texts: Mapping[str, str], paths: Iterable[str], modules: Mapping[str, str]
) -> Iterator[tuple[str, str, int]]:
    """User, what it names, and how far that is."""
    files, folders = defaultdict(list), defaultdict(list)
    for path in paths:
        pure = PurePosixPath(path)
        if path.endswith(".py") and any(name in pure.parts for name in ("conftest.py", "__init__.py")):
            continue
        files[pure.name].append(path)
        if not path.endswith(".py"):
            of_tests = path.startswith("tests/")
            for folder in [pure.parent.name] if of_tests else [str(folder) for folder in pure.parents if folder.name]:
                folders[folder].append(path)
    for user, text in texts.items():
        for word in set(QUOTED.findall(text)):
            name = word.rpartition("}")[2].strip("/")
            last = name.rpartition("/")[2]
            yield from ((user, one, IMPORTED) for one in files.get(last, ()) if f"/{one}".endswith(f"/{name}"))
            yield from ((user, one, NAMED_FOLDER) for one in folders.get(name, ()))
            if word in modules and re.search(r"[._]", word):
                yield user, modules[word], IMPORTED
