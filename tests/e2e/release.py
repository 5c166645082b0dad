# SPDX-License-Identifier: Apache-2.0
"""Releases of the chart: the installed one, and those that tests have beside it, confined to a namespace of theirs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.kube import BUSY, Namespace, run, succeed

CHART = str(Path(__file__).resolve().parents[2] / "charts" / "elasticjob")
SECONDS = 120  # for what helm waits for, on a machine at rest


def helm(verb: str, release: str, namespace: Namespace, *arguments: str) -> str:
    """Run helm, whose own time limit is that of a busy machine too. Raises Failed, and Deadline after that time."""
    where = ("--namespace", namespace.name, f"--timeout={BUSY * SECONDS}s")
    return succeed("helm", verb, release, *arguments, *where, seconds=SECONDS + 10)


def confined(namespace: Namespace, replicas: int) -> tuple[str, str]:
    """The options of a release that has no other namespace to look after."""
    return "--set", f"replicas={replicas},namespaces={{{namespace.name}}},allowOverlap=true"


@contextmanager
def removed(release: str, namespace: Namespace) -> Iterator[None]:
    """Uninstalls the release in the end, also if the test fails. Its ClusterRoles outlive its namespace, and the test's
    second run could not install it again."""
    try:
        yield
    finally:
        run("helm", "uninstall", release, "--namespace", namespace.name, "--ignore-not-found", "--no-hooks")
