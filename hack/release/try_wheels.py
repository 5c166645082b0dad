# SPDX-License-Identifier: Apache-2.0
"""Install the built wheels as users do, each part into a clean environment, and call what it has.

    python hack/release/try_wheels.py DIRECTORY

What the parts need comes from the package index, in its newest version, as it would for a user.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from project import ROOT, projects

SECONDS = 600

CORE = "from elasticjob.api import ElasticJobSpec; print(sorted(ElasticJobSpec.model_fields)[:1])"
# torch is not installed: outside of a job the plug-in must not need it, and torchrun finds it by its entry point
TRAINER = """
import importlib.metadata
import elasticjob_torch
assert elasticjob_torch.wants_restart() is False
elasticjob_torch.report(step=1)
print(sorted(entry.name for entry in importlib.metadata.entry_points(group="torchrun.handlers")))
"""


@dataclass(frozen=True)
class Trial:
    distribution: str
    extra: str
    command: Sequence[str]
    says: str
    code: int = 0


TRIALS = (
    Trial("elasticjob", "", ["python", "-c", CORE], "['"),
    Trial("elasticjob", "", ["python", "-c", TRAINER], "['elasticjob', 'kubernetes']"),
    Trial("elasticjob", "operator", ["elasticjob-operator", "--help"], "usage: elasticjob-operator"),
    Trial("elasticjob", "sidecar", ["elasticjob-sidecar"], "elasticjob-sidecar: ", code=1),
    Trial("elasticjob-cli", "", ["kubectl-elasticjob", "--help"], "status"),
    Trial("elasticjob-cli", "", ["kubectl-ej", "why", "--help"], "why"),
)


class TrialError(Exception):
    """A wheel does not work as installed; the message has what was printed."""


def run(command: Sequence[str | Path], environment: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        cwd=tempfile.gettempdir(),  # not the checkout, whose folders Python would find first
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return done.returncode, done.stdout


def install(folder: Path, wanted: str, others: Sequence[Path]) -> dict[str, str]:
    """Make an environment with one wheel, and with those of ours that it asks for; returns its variables."""
    venv.create(folder, with_pip=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PATH": f"{folder / 'bin'}:{environment['PATH']}", "VIRTUAL_ENV": str(folder)}
    for command in (["pip", "install", "--quiet", wanted, *others], ["pip", "check"]):
        code, text = run([folder / "bin" / "python", "-m", *command], environment)
        if code:
            raise TrialError(f"{wanted}: pip {command[1]} failed:\n{text}")
    return environment


def check(trial: Trial, environment: dict[str, str]) -> None:
    code, text = run([Path(environment["VIRTUAL_ENV"]) / "bin" / trial.command[0], *trial.command[1:]], environment)
    if code != trial.code or trial.says not in text:
        raise TrialError(
            f"{trial.command[0]} ended with {code} instead of {trial.code}, or did not say '{trial.says}':\n{text}"
        )


def try_all(directory: Path) -> list[str]:
    """One line for each part that was tried."""
    wheels = {
        project["name"]: next(directory.glob(f"{project['name'].replace('-', '_')}-{project['version']}-*.whl"), None)
        for project in projects().values()
    }
    if missing := [name for name, wheel in wheels.items() if wheel is None]:
        raise TrialError(f"{directory} has no wheel of {', '.join(missing)}; run hack/release/wheels.sh")
    found = {name: wheel.resolve() for name, wheel in wheels.items() if wheel}
    if untried := sorted(found.keys() - {trial.distribution for trial in TRIALS}):
        raise TrialError(f"nothing tries {', '.join(untried)}; add calls of what they have to TRIALS in try_wheels.py")
    lines = []
    parts = {(trial.distribution, trial.extra) for trial in TRIALS}
    for name, extra in sorted(parts):
        wanted = f"{found[name]}[{extra}]" if extra else str(found[name])
        ours = [found["elasticjob"]] if name != "elasticjob" else []
        with tempfile.TemporaryDirectory() as folder:
            environment = install(Path(folder), wanted, ours)
            trials = [trial for trial in TRIALS if (trial.distribution, trial.extra) == (name, extra)]
            for trial in trials:
                check(trial, environment)
        lines.append(f"{name}{f'[{extra}]' if extra else ''}: installed, {len(trials)} calls answered")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="try_wheels.py", description="Install the wheels and call what they have.")
    parser.add_argument("directory", type=Path, help="where they are, such as build/release/wheels")
    try:
        print("\n".join(try_all(ROOT / parser.parse_args().directory)))
    except TrialError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
