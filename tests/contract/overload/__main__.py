# SPDX-License-Identifier: Apache-2.0
"""Runs the container, cuts its CPUs, and judges. Exits with 1 if a run fails."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from contract.overload.inside import NODES

ROOT = Path(__file__).resolve().parents[3]
LOG = ROOT / "build/overload.log"
START_SECONDS, END_SECONDS = 300.0, 300.0
# how many CPUs the container has for how many seconds, once all processes train; in the end it has all again
STALLS = "0.4:60 0.12:90"


def main() -> int:
    parser = argparse.ArgumentParser(prog="contract.overload")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--stalls", default=STALLS, help="CPUs:SECONDS of each stall, one after the other")
    asked, failed = parser.parse_args(), 0
    stalls = [tuple(map(float, one.split(":"))) for one in asked.stalls.split()]
    for number in range(1, asked.runs + 1):
        (ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="overload-", dir=ROOT / "build") as folder:
            wrong = run(Path(folder), stalls)
            if wrong:
                shutil.copy(Path(folder) / "log", LOG)
                wrong.append(f"what was printed is in {LOG}")
        verdict = "; ".join(wrong) or "nobody was lost, and nothing was started again"
        print(f"overload: run {number}: {verdict}", flush=True)
        failed += bool(wrong)
    return 1 if failed else 0


def run(folder: Path, stalls: Iterable[tuple[float, ...]]) -> list[str]:
    """What went wrong; empty if nothing did."""
    command = [ROOT / "hack/with-torch.sh", "digits", "python", "-m", "contract.overload.inside", folder]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as inside:
        try:
            _wait("all processes to train", lambda: len(_started(folder)) >= sum(NODES), inside, START_SECONDS)
            for cpus, seconds in stalls:
                _limit(folder, cpus)
                time.sleep(seconds)
            _limit(folder, 0)
            (folder / "finish").touch()
            _wait("the torchruns to end", lambda: inside.poll() is not None, inside, END_SECONDS, may_end=True)
        except TimeoutError as late:
            return [str(late), *(folder / "log").read_text(errors="replace").splitlines()[-20:]]
        finally:
            if inside.poll() is None:
                subprocess.run(["docker", "rm", "--force", _container(folder)], capture_output=True, check=False)
    return list(_judged(folder, inside.returncode))


def _judged(folder: Path, code: int) -> list[str]:
    started, ended = _started(folder), [json.loads(one.read_text()) for one in folder.glob("ended-*")]
    wrong = [f"exit code {code}"] if code else []
    if len(started) != sum(NODES):
        wrong.append(f"{len(started)} processes were started, and not {sum(NODES)}")
    if sorted(one["rank"] for one in ended) != list(range(sum(NODES))):
        wrong.append(f"these ranks ended: {sorted(one['rank'] for one in ended)}")
    for one in ended:
        if one["ranks"] != list(range(one["ranks"][0], one["ranks"][0] + len(one["ranks"]))):
            wrong.append(f"the ranks of node {one['node']} are {one['ranks']}")
    return wrong


def _started(folder: Path) -> list[Path]:
    return list(folder.glob("started-*"))


def _container(folder: Path) -> str:
    return (folder / "container").read_text().strip()


def _limit(folder: Path, cpus: float) -> None:
    """0 is no limit."""
    quota = int(cpus * 100_000) or -1
    limits = ["--cpu-period=100000", f"--cpu-quota={quota}"]
    subprocess.run(["docker", "update", *limits, _container(folder)], capture_output=True, check=True)


def _wait(
    what: str, happens: Callable[[], bool], inside: subprocess.Popen[bytes], seconds: float, may_end: bool = False
) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > deadline or (inside.poll() is not None and not may_end):
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
