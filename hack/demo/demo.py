# SPDX-License-Identifier: Apache-2.0
"""The part of `make demo` after the set-up: a job that trains on real data while its group of workers changes.

It changes the cluster only by commands that a user would type, and prints them. When something is not as it should
be, it ends with code 1 and prints the objects, events and logs that explain it. Standard library and kubectl only.
"""

import atexit
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
JOB = "digits"
PODS = f"--selector=elasticjob.io/job={JOB}"
ROUNDS = [(1, 2), (2, 4), (3, 3), (4, 3)]  # number and size: one round for each change
LEAST_ACCURACY = 0.95
KUBECTL_SECONDS, ROUND_SECONDS, LOG_SECONDS, HEARTBEAT_SECONDS, END_SECONDS = 60, 180, 120, 15, 300
STARTED = float(os.environ.get("ELASTICJOB_STARTED", time.time()))

Object = dict[str, Any]
T = TypeVar("T")


class Failure(Exception):
    """Something is not as it should be; one sentence says what."""


class Sighting(NamedTuple):
    """One state of the job, and when it was seen (monotonic seconds)."""

    at: float
    status: Object

    @property
    def rendezvous(self) -> Object:
        return dict(self.status.get("rendezvous", {}))

    @property
    def rank_0(self) -> str:
        """Rank 0's pod; a pod is named <job>-<index>-<how often it was replaced>."""
        index = int(self.rendezvous["participants"].replace("-", "/").partition("/")[0])
        for word in self.status.get("replacements", "").split():  # index/number or first-last/number
            indices, _, number = word.partition("/")
            first, _, last = indices.partition("-")
            if int(first) <= index <= int(last or first):
                return f"{JOB}-{index}-{number}"
        return f"{JOB}-{index}-0"


class Watch:
    """All states of the job, as `kubectl get --watch` tells them; when the API server ends a watch, another begins."""

    def __init__(self) -> None:
        self.sightings: list[Sighting] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        command = ["kubectl", "get", "elasticjob", JOB, "--watch", '--output=jsonpath={.status}{"\\n"}']
        while True:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            atexit.register(process.terminate)
            for line in process.stdout or ():
                if line.strip():
                    self.sightings.append(Sighting(time.monotonic(), json.loads(line)))
            time.sleep(1)

    def wait_for(self, what: str, test: Callable[[Sighting], bool], seconds: float) -> Sighting:
        """The first state that passes `test`; no longer awaited once the job has ended."""

        def found() -> Sighting | None:
            for sighting in list(self.sightings):
                if test(sighting):
                    return sighting
                if (phase := sighting.status["phase"]) in ("Complete", "Failed"):
                    raise Failure(f"the job is {phase} ({sighting.rendezvous['reason']}), no use to wait for {what}")
            return None

        return wait_until(what, found, seconds)


def say(text: str) -> None:
    print(f"{time.time() - STARTED:4.0f}s  {text}", flush=True)


def show(text: str) -> None:
    print("".join(f"       {line}\n" for line in text.splitlines() if line), end="", flush=True)


def kubectl(*arguments: str) -> str:
    done = subprocess.run(
        ["kubectl", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=KUBECTL_SECONDS
    )
    if done.returncode:
        raise Failure(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
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


def see_round(watch: Watch, number: int, since: float) -> float:
    """Wait until a round is formed and trains; returns the seconds to its forming."""

    def formed(one: Sighting) -> bool:
        return bool(one.rendezvous.get("round") == number and one.rendezvous["phase"] == "Formed")

    def trains() -> str | None:
        """From the trainer's start in this round to its first epoch."""
        log = kubectl("logs", round_.rank_0, "--container=trainer")
        found = re.search(rf"^started: world_size={size} .*\n(.*\n)*?epoch .* world_size={size} .*", log, re.M)
        return found and found[0]

    round_ = watch.wait_for(f"round {number} to be formed", formed, ROUND_SECONDS)
    size, seconds = round_.rendezvous["worldSize"], round_.at - since
    say(f"round {number} has {size} workers after {seconds:.1f} s: {round_.rendezvous['reason']}")
    lines = wait_until(f"an epoch with world_size={size} in the log of {round_.rank_0}", trains, LOG_SECONDS)
    say(f"rank 0 trains in it; the log of {round_.rank_0}:")
    show(lines)
    return seconds


def check(status: Object, log: str) -> str:
    """Compare how the job ended with how it should have; returns one sentence."""
    rounds = [(one["round"], one["size"]) for one in status["history"]]
    counts = "--output=jsonpath={.items[*].status['containerStatuses','initContainerStatuses'][*].restartCount}"
    restarts = [status["restarts"], *map(int, kubectl("get", "pods", PODS, counts).split())]
    accuracy = float((re.findall(r"^test accuracy: ([0-9.]+)", log, re.M) or ["0"])[-1])
    if rounds != ROUNDS:
        raise Failure(f"numbers and sizes of the rounds are {rounds}, and should be {ROUNDS}")
    if any(restarts):
        raise Failure(f"the restarts of the job and of its pods' containers are {restarts}, and should be 0")
    if accuracy < LEAST_ACCURACY:
        raise Failure(f"the test accuracy is {accuracy:.1%}, and should be at least {LEAST_ACCURACY:.0%}")
    return f"Complete: test accuracy {accuracy:.1%}, {len(rounds)} rounds, 0 restarts"


def reported(status: Object) -> bool:
    """Whether the script's last epoch has come to the status."""
    progress = status.get("progress", {})
    return "step" in progress and progress["step"] == progress.get("total")


def demo() -> None:
    began = run("apply", "--kustomize", "hack/demo", why="2 workers, at least 1, at most 4")
    watch = Watch()
    times = [("kubectl apply, to the first round", see_round(watch, 1, began))]
    ranks = ["get", "elasticworkers", PODS, "--output=jsonpath={.items[*].status.rank}"]
    wait_until("both ranks in the ElasticWorkers", lambda: len(kubectl(*ranks).split()) == 2, HEARTBEAT_SECONDS)
    run("get", "elasticjobs,elasticworkers", why="the round, and each worker's rank in it")
    began = run("scale", f"elasticjob/{JOB}", "--replicas=4", why="training goes on until both newcomers are there")
    times += [("kubectl scale 2 to 4, to the new round", see_round(watch, 2, began))]
    began = run("scale", f"elasticjob/{JOB}", "--replicas=3", why="the highest rank is told to leave")
    times += [("kubectl scale 4 to 3, to the new round", see_round(watch, 3, began))]

    rank_0 = watch.sightings[-1].rank_0
    began = run("delete", "pod", rank_0, "--wait=false", why="rank 0, whose pod serves the round's store")
    told = watch.wait_for("round 3 to end", lambda one: bool(one.rendezvous.get("round") == 4), ROUND_SECONDS)
    times += [("kubectl delete pod, to survivors told", told.at - began)]
    times += [("kubectl delete pod, to the new round", see_round(watch, 4, began))]

    say("the training goes on to its last epoch")
    end = watch.wait_for("the job to be Complete", lambda one: one.status["phase"] == "Complete", END_SECONDS)
    wait_until("the last epoch in the job's status", lambda: reported(watch.sightings[-1].status), HEARTBEAT_SECONDS)
    log = kubectl("logs", end.rank_0, "--container=trainer")
    run("get", "elasticjobs", why="Complete when the last worker has finished; STEP is what the script reported")
    say(check(end.status, log))
    show("\n".join(f"{what:40} {seconds:5.1f} s" for what, seconds in times))
    kubeconfig = Path(os.environ["KUBECONFIG"])
    say("the cluster stays; to look around in it:")
    show(f'export KUBECONFIG="{kubeconfig}" PATH="{kubeconfig.parent}/bin:$PATH"')


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
        command = ["kubectl", "--request-timeout=20s", *question]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(*done.stdout.splitlines()[-150:], sep="\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        demo()
    except (Failure, subprocess.TimeoutExpired) as error:
        explain()
        say(f"the demo failed: {error}")
        sys.exit(1)
