# SPDX-License-Identifier: Apache-2.0
"""Releases of the chart: the installed one, and those that tests have beside it, confined to a namespace of theirs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.kube import BUSY, Namespace, run, succeed

CHART = str(Path(__file__).resolve().parents[2] / "charts" / "elasticjob")
SECONDS = 120  # for what helm waits for, on a machine at rest


def helm(verb: str, release: str, namespace: Namespace, *arguments: str) -> str:
    """Helm waits as long as `succeed` would. Raises Failed, and Deadline where it has waited in vain."""
    where = ("--namespace", namespace.name, f"--timeout={BUSY * SECONDS}s")
    return succeed("helm", verb, release, *arguments, *where, seconds=SECONDS + 10)


def confined(namespace: Namespace, replicas: int) -> tuple[str, str]:
    """The options of a release that has no other namespace to look after."""
    return "--set", f"replicas={replicas},namespaces={{{namespace.name}}},allowOverlap=true"


@contextmanager
def removed(release: str, namespace: Namespace) -> Iterator[None]:
    """Afterwards there is no such release: what one has outside of its namespace would stand in the way of the next,
    were it that of a test's second run."""
    try:
        yield
    finally:
        run("helm", "uninstall", release, "--namespace", namespace.name, "--ignore-not-found", "--no-hooks")
