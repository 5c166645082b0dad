# SPDX-License-Identifier: Apache-2.0
"""A training that only counts: each step is one sum over all workers, and rank 0 saves the count.

Every line that it prints names the group of workers that took the step together, so that a test can tell the
training after a new round from the one before. Each step is reported as well. `touch /tmp/finish` in any worker ends
it in success everywhere, `touch /tmp/grow` lets that one take 4 GiB, `touch /tmp/spin` lets it turn in a loop until
`touch /tmp/calm`, `echo 300 > /tmp/queued` has it report so much work. FINISH_SECONDS says, by rank,
how long each goes on after the last step; `touch /tmp/saved` ends that.
"""

import os
import secrets
import tempfile
import time
from pathlib import Path

from group import join

try:
    import elasticjob_torch
except ImportError:  # plain torchrun, for comparison
    elasticjob_torch = None

STEP_SECONDS = 0.2
STEPS = int(os.environ.get("STEPS", "1000000"))
SAVE_EVERY = 5
FAIL_AT_STEP = int(os.environ.get("FAIL_AT_STEP", "0"))
EXIT_CODE = int(os.environ.get("EXIT_CODE", "0"))  # with which the highest rank, and no other, ends at that step
FINISH_SECONDS = [float(seconds) for seconds in os.environ.get("FINISH_SECONDS", "0").split(",")]
TMP = Path(tempfile.gettempdir())
FINISH, GROW, SPIN, CALM, QUEUED, SAVED = (TMP / name for name in ("finish", "grow", "spin", "calm", "queued", "saved"))
CHECKPOINT = Path(os.environ.get("CHECKPOINTS", "/checkpoints"), os.environ["TORCHELASTIC_RUN_ID"])


def main() -> None:
    processes = join()
    rank = processes.rank
    group, done = processes.sum(secrets.randbits(32), load()) if rank == 0 else processes.sum(0, 0)
    for step in range(done + 1, STEPS + 1):
        time.sleep(STEP_SECONDS)
        if SPIN.exists() and not CALM.exists():
            spin()
        workers, finish = processes.sum(1, FINISH.exists())
        print(f"group={group:08x} world_size={workers} rank={rank} step={step}", flush=True)
        if elasticjob_torch:
            elasticjob_torch.report(step=step, total=STEPS, **queued())
        if step == FAIL_AT_STEP and not EXIT_CODE:
            raise RuntimeError(f"FAIL_AT_STEP is {step}")
        if step == FAIL_AT_STEP and rank == workers - 1:
            raise SystemExit(EXIT_CODE)
        if rank == 0 and step % SAVE_EVERY == 0:
            save(step)
        if GROW.exists():
            GROW.unlink()
            print(len(b"x" * (4 << 30)))
        if finish:
            break
    processes.leave()
    # by rank: how long this worker goes on after the last step, as if it saved a large model
    end = time.monotonic() + FINISH_SECONDS[min(rank, len(FINISH_SECONDS) - 1)]
    while time.monotonic() < end and not SAVED.exists():
        time.sleep(min(0.1, max(0.0, end - time.monotonic())))
    print("saved", flush=True)


def queued() -> dict[str, float]:
    return {"queued": float(QUEUED.read_text() or 0)} if QUEUED.exists() else {}


def spin() -> None:
    while not CALM.exists():
        for _ in range(1_000_000):
            pass


def load() -> int:
    return int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0


def save(step: int) -> None:
    """Whole or not at all, also when the worker is killed meanwhile."""
    new = CHECKPOINT.with_suffix(".new")
    new.write_text(str(step))
    new.replace(CHECKPOINT)


if __name__ == "__main__":
    main()
