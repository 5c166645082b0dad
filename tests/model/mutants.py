"""Shows that the checks can fail: each mutation is one seeded mistake, and something has to catch it.

`make mutants`, or `python -m model.mutants [--all] [word ...]`: only mutations in whose sentence each word occurs. A
mutation is made in a copy of the sources, and there the unit tests of the rendezvous, a quick exploration of each
model and some lives of the simulation run, that one first which is known to catch it; the first catch ends it. `--all`
lets all run, and tells of each. A mutation that survives, or whose text is not in the sources exactly once any more,
ends the run with exit code 1.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from model.mutations import MUTATIONS as OF_RULES
from model.mutations import Mutation
from model.mutations_challenges import MUTATIONS as OF_CHALLENGES
from model.mutations_draining import MUTATIONS as OF_DRAINING
from model.mutations_hangs import MUTATIONS as OF_HANGS
from model.mutations_nodes import MUTATIONS as OF_NODES
from model.mutations_policy import MUTATIONS as OF_POLICY
from model.mutations_quota import MUTATIONS as OF_QUOTA
from model.mutations_ranks import MUTATIONS as OF_RANKS
from model.mutations_sizes import MUTATIONS as OF_SIZES
from model.mutations_spares import MUTATIONS as OF_SPARES
from simulation.mutations_metrics import MUTATIONS as OF_METRICS
from simulation.mutations_operator import MUTATIONS as OF_OPERATOR
from simulation.mutations_sidecar import MUTATIONS as OF_SIDECAR

MUTATIONS = (
    *OF_RULES,
    *OF_CHALLENGES,
    *OF_SPARES,
    *OF_DRAINING,
    *OF_HANGS,
    *OF_POLICY,
    *OF_SIZES,
    *OF_NODES,
    *OF_RANKS,
    *OF_QUOTA,
    *OF_OPERATOR,
    *OF_SIDECAR,
    *OF_METRICS,
)
ROOT = Path(__file__).parents[2]
COPIED = (
    "core",
    "operator",
    "sidecar",
    "tests/support",
    "tests/unit",
    "tests/model",
    "tests/simulation",
    "trainer",
    "docs",
    "pyproject.toml",
)
PROCESSES = 2
LONGEST_SECONDS = 300  # a mutant may run in circles
PYTEST = ("-m", "pytest", "--exitfirst", "-q", "--no-header", "-p", "no:cacheprovider")
UNIT_TESTS = (
    *PYTEST,
    "tests/unit/core/rendezvous/test_transcripts.py",
    "tests/unit/core/rendezvous/test_moves.py",
    "tests/unit/sidecar/membership/test_membership.py",
    "tests/unit/sidecar/membership/test_silences.py",
)
WIRE_TESTS = (  # the sidecar's input and output, and the plug-in's
    *PYTEST,
    "tests/unit/sidecar/test_over_the_wire.py",
    "tests/unit/sidecar/test_doubts_over_the_wire.py",
    "tests/unit/sidecar/test_driver.py",
    "tests/unit/sidecar/kubernetes/test_worker_record.py",
    "tests/unit/sidecar/kubernetes/test_words.py",
    "tests/unit/sidecar/kubernetes/test_job_watch.py",
    "tests/unit/trainer/sidecar/test_events.py",
    "tests/unit/trainer/sidecar/test_client.py",
    "tests/unit/trainer/agent/test_membership.py",
)
EXPLORE = ("-m", "model.explore", "--quick", "--alone")
SIMULATE = ("-m", "simulation", "--seeds", "300", "--seconds", "200", "--processes", "1")
CHECKS = {
    "unit": UNIT_TESTS,
    "wire": WIRE_TESTS,
    "operator tests": (*PYTEST, *(f"tests/unit/operator/{room}" for room in ("actions", "cluster", "job"))),
    "operator": (*EXPLORE, "operator"),
    "composed": (*EXPLORE, "composed"),
    "simulation": SIMULATE,
}


class Verdict(NamedTuple):
    mutation: Mutation
    caught: dict[str, str]
    seconds: float


def tried(mutation: Mutation, everything: bool) -> Verdict:
    """What catches the mutation: by the name of the check, what it said."""
    began, caught = time.perf_counter(), {}
    with TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        _copy(root)
        path = root / mutation.file
        path.write_text(path.read_text().replace(mutation.old, mutation.new))
        for name in (mutation.by, *(name for name in CHECKS if name != mutation.by)):
            if said := _run(root, _command(name, mutation)):
                caught[name] = said
                if not everything:
                    break
    return Verdict(mutation, caught, time.perf_counter() - began)


def _command(check: str, mutation: Mutation) -> tuple[str, ...]:
    """Of the kinds of lives the one that is mostly about what the mutation is in."""
    if check.startswith("tests/"):
        return (*PYTEST, check)
    if check != "simulation":
        return CHECKS[check]
    return (*CHECKS[check], "--kind", "operator" if mutation.file.startswith("operator/") else "workers")


def _copy(root: Path) -> None:
    for name in COPIED:
        source, target = ROOT / name, root / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def _run(root: Path, arguments: tuple[str, ...]) -> str:
    """What a check said of the mutant, empty if it found nothing."""
    path = os.pathsep.join(str(root / name) for name in ("core", "operator", "sidecar", "trainer", "tests"))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it does not end within {LONGEST_SECONDS} s"
    return "" if done.returncode == 0 else _essence(done.stdout + done.stderr)


def _essence(output: str) -> str:
    """The one line of a failed check that says what it is about."""
    patterns = (
        r"^seed \d+ .*broke .*\n  (.*)",
        r"^FAILED \S+/(\S+::\S+)",
        r"^.*?: after [\d,]+ states: (.*)",
        r"^E? *(\w+(?:Error|Move|Refused)\b.*)",
    )
    for pattern in patterns:
        if found := re.search(pattern, output, re.MULTILINE):
            return found[1]
    return output.strip().splitlines()[-1] if output.strip() else "it fails without a word"


def rotten() -> Iterator[str]:
    """Mutations that cannot be made."""
    for mutation in MUTATIONS:
        times = (ROOT / mutation.file).read_text().count(mutation.old)
        if times != 1:
            yield f"{mutation.file} has this {times} times, and not once: {mutation.old!r} ({mutation.mistake})"


def main(arguments: list[str]) -> int:
    words = [word for word in arguments if not word.startswith("--")]
    chosen = [mutation for mutation in MUTATIONS if all(word in mutation.mistake for word in words)]
    if problems := list(rotten()):
        print("\n".join(problems))
        return 1
    began, survivors = time.perf_counter(), []
    with ThreadPoolExecutor(PROCESSES) as pool:
        for verdict in pool.map(lambda mutation: tried(mutation, "--all" in arguments), chosen):
            said = "; ".join(f"{name}: {what}" for name, what in verdict.caught.items()) or "SURVIVES"
            where = f"{Path(verdict.mutation.file).name}, {verdict.seconds:.0f} s"
            print(f"{verdict.mutation.mistake}\n    {where}: {said}", flush=True)
            if not verdict.caught:
                survivors.append(verdict.mutation.mistake)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants caught in {time.perf_counter() - began:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
