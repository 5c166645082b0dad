"""The part of `make demo` after the set-up: a job that trains on real data while its group of workers changes.

It changes the cluster only by commands that a user would type, and prints them. When something is not as it should
be, it ends with code 1 and prints the objects, events and logs that explain it. Standard library and kubectl only.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = "examples/digits/demo"
JOB = "digits"
PODS = f"--selector=elasticjob.io/job={JOB}"
LEAST_ACCURACY = 0.95
KUBECTL_SECONDS, ROUND_SECONDS, LOG_SECONDS, HEARTBEAT_SECONDS, END_SECONDS = 60, 180, 120, 15, 300
STARTED = float(os.environ.get("ELASTICJOB_STARTED", time.time()))

T = TypeVar("T")


class Failure(Exception):
    """Something is not as it should be; one sentence says what."""


def say(text: str) -> None:
    print(f"{time.time() - STARTED:4.0f}s  {text}", flush=True)


def show(text: str) -> None:
    print("\n".join(f"       {line}" for line in text.rstrip().splitlines()), flush=True)


def kubectl(*arguments: str) -> str:
    command = ["kubectl", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=KUBECTL_SECONDS)
    if done.returncode:
        raise Failure(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def run(*arguments: str, why: str) -> float:
    """What a user would type; returns the moment before."""
    say(f"$ kubectl {' '.join(arguments)}   # {why}")
    before = time.monotonic()
    show(kubectl(*arguments))
    return before


def wait_until(what: str, probe: Callable[[], T | None], seconds: float) -> T:
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        if time.monotonic() >= deadline:
            raise Failure(f"waited {seconds} s for {what}")
        time.sleep(0.1)
    return found


class Sighting(NamedTuple):
    """One state of the job, and when it was seen (monotonic seconds)."""

    at: float
    status: dict[str, Any]

    @property
    def rendezvous(self) -> dict[str, Any]:
        return self.status.get("rendezvous", {})


class Watch:
    """All states of the job's status, as `kubectl get --watch` tells them."""

    def __init__(self) -> None:
        command = ["kubectl", "get", "elasticjob", JOB, "--watch", '--output=jsonpath={.status}{"\\n"}']
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._sightings: list[Sighting] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if line.strip():
                self._sightings.append(Sighting(time.monotonic(), json.loads(line)))

    @property
    def latest(self) -> Sighting:
        return self._sightings[-1] if self._sightings else Sighting(0, {})

    def wait_for(self, what: str, test: Callable[[Sighting], bool], seconds: float) -> Sighting:
        """The first state that passes `test`."""

        def found() -> Sighting | None:
            sighting = next((one for one in list(self._sightings) if test(one)), None)
            if not sighting and self.latest.status.get("phase") in ("Complete", "Failed"):
                reason = self.latest.rendezvous.get("reason")
                raise Failure(f"the job is {self.latest.status['phase']} ({reason}) before {what}")
            if not sighting and self._process.poll() is not None:
                raise Failure(f"kubectl get --watch ended before {what}")
            return sighting

        return wait_until(what, found, seconds)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def rank_0_pod(sighting: Sighting) -> str:
    """A pod is named <job>-<index>-<how often it was replaced>."""
    index = sighting.rendezvous["participants"][0]["index"]
    return f"{JOB}-{index}-{sighting.status.get('replacements', {}).get(str(index), 0)}"


def see_round(watch: Watch, number: int, size: int, since: float) -> float:
    """Wait until round `number` has `size` workers and its trainer says the same; returns the round's seconds."""

    def formed(one: Sighting) -> bool:
        return one.rendezvous.get("round") == number and one.rendezvous["phase"] == "Formed"

    round_ = watch.wait_for(f"round {number} to be formed", formed, ROUND_SECONDS)
    seconds = round_.at - since
    say(
        f"round {number} has {round_.rendezvous['worldSize']} workers after {seconds:.1f} s: "
        f"{round_.rendezvous['reason']}"
    )
    pod = rank_0_pod(round_)
    line = wait_until(
        f"pod {pod} to log that it trains with world_size={size}",
        lambda: re.search(rf"^started: world_size={size} .*", kubectl("logs", pod, "--container=trainer"), re.M),
        LOG_SECONDS,
    )
    say(f"{pod} logs: {line[0]}")
    return seconds


def see_ranks(size: int) -> None:
    """A worker's rank is written into its record with its next heartbeat."""
    ranks = ["get", "elasticworkers", PODS, "--output=jsonpath={.items[*].status.rank}"]
    what = f"{size} ranks in the ElasticWorkers"
    wait_until(what, lambda: len(kubectl(*ranks).split()) == size, HEARTBEAT_SECONDS)


def see_end(watch: Watch) -> str:
    """Wait for the job's end and check all that it says of itself; returns one sentence."""
    say("the training goes on to its last epoch")
    end = watch.wait_for("the job to be Complete", lambda one: one.status.get("phase") == "Complete", END_SECONDS)
    run("get", "elasticjobs", why="it is Complete")
    rounds = [(one["round"], one["size"]) for one in end.status["history"]]
    restarts = [end.status["restarts"]]
    containers = "{.items[*].status['containerStatuses','initContainerStatuses'][*].restartCount}"
    restarts += [int(count) for count in kubectl("get", "pods", PODS, f"--output=jsonpath={containers}").split()]
    log = kubectl("logs", rank_0_pod(end), "--container=trainer")
    accuracy = float((re.findall(r"^test accuracy: ([0-9.]+)", log, re.M) or ["0"])[-1])
    if rounds != [(1, 2), (2, 4), (3, 3), (4, 3)]:
        raise Failure(f"the rounds and their sizes are {rounds}, and each change should have cost one round")
    if any(restarts):
        raise Failure(f"restarts of the job and of its pods' containers are {restarts}, and none was expected")
    if accuracy < LEAST_ACCURACY:
        raise Failure(f"the test accuracy is {accuracy:.1%}, and at least {LEAST_ACCURACY:.0%} was expected")
    return f"Complete: test accuracy {accuracy:.1%}, {len(rounds)} rounds, 0 restarts"


def demo() -> None:
    applied = run("apply", "--kustomize", MANIFEST, why="2 workers, at least 1, at most 4")
    watch = Watch()
    times = {"kubectl apply, to the first round": see_round(watch, 1, 2, applied)}
    see_ranks(2)
    run("get", "elasticjobs,elasticworkers", why="the job's round and each worker's rank")

    scaled = run("scale", f"elasticjob/{JOB}", "--replicas=4", why="training goes on until both newcomers are there")
    times["kubectl scale 2 to 4, to the new round"] = see_round(watch, 2, 4, scaled)
    scaled = run("scale", f"elasticjob/{JOB}", "--replicas=3", why="the highest rank is told to leave")
    times["kubectl scale 4 to 3, to the new round"] = see_round(watch, 3, 3, scaled)

    victim = rank_0_pod(watch.latest)
    deleted = run("delete", "pod", victim, "--wait=false", why="rank 0, whose pod serves the round's store")
    broken = watch.wait_for("round 3 to be ended", lambda one: one.rendezvous.get("round") == 4, ROUND_SECONDS)
    times["kubectl delete pod, to survivors told"] = broken.at - deleted
    times["kubectl delete pod, to the new round"] = see_round(watch, 4, 3, deleted)

    result = see_end(watch)
    watch.close()
    say(result)
    show("\n".join(f"{what:40} {seconds:5.1f} s" for what, seconds in times.items()))


def explain() -> None:
    """The objects, the events and the ends of the logs; asks one thing at a time and takes what it gets."""
    system = ["--namespace=elasticjob-system", "--selector=app.kubernetes.io/name=elasticjob"]
    for question in (
        ["get", "elasticjobs,elasticworkers,pods", "--output=wide"],
        ["get", "elasticjob", JOB, "--output=yaml"],
        ["get", "events", "--sort-by=.metadata.creationTimestamp"],
        ["logs", PODS, "--all-containers", "--ignore-errors", "--prefix", "--tail=40", "--max-log-requests=20"],
        ["logs", *system, "--prefix", "--tail=60"],
    ):
        print(f"\n$ kubectl {' '.join(question)}", file=sys.stderr, flush=True)
        subprocess.run(["kubectl", *question], stdout=sys.stderr, timeout=KUBECTL_SECONDS)


def main() -> int:
    try:
        demo()
    except (Failure, subprocess.TimeoutExpired) as error:
        explain()
        say("the demo failed")
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
