# SPDX-License-Identifier: Apache-2.0
"""What a run of these tests that was cut off has left in the cluster would be found by the next one: it goes first."""

import json
from collections.abc import Iterator

from e2e import adapter, controllers, jobset
from e2e.kube import run, succeed
from e2e.kueue import QUEUES

SECONDS = 60  # for all namespaces to go

OUTSIDE = (  # what a release of the chart has outside of its namespace
    "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,"
    "flowschemas,prioritylevelconfigurations"
)


def sweep(prefix: str) -> None:
    """Remove the namespaces whose names begin so, and the releases in them with what they have outside of them.

    No other run of these tests may be under way."""
    found = run("kubectl", "get", "namespaces", "--request-timeout=10s", "--output=name")
    names = [line.removeprefix("namespace/") for line in found.output.splitlines()]
    adapter.forget()
    controllers.let_go(*QUEUES)
    controllers.forget(*jobset.KINDS)
    if left := [name for name in names if name.startswith(prefix)]:
        for release in json.loads(succeed("helm", "list", "--all", "--all-namespaces", "--output=json")):
            if release["namespace"] in left:
                run("helm", "uninstall", release["name"], "--namespace", release["namespace"], "--no-hooks")
        succeed("kubectl", "delete", "namespace", *left, "--ignore-not-found", f"--timeout={SECONDS}s", seconds=SECONDS)
    if orphans := list(outside(prefix)):
        succeed("kubectl", "delete", *orphans, "--ignore-not-found")


def outside(prefix: str) -> Iterator[str]:
    """The objects without a namespace of releases in namespaces that begin so, as kind/name."""
    for item in json.loads(succeed("kubectl", "get", OUTSIDE, "--output=json"))["items"]:
        meta = item["metadata"]
        if meta.get("annotations", {}).get("meta.helm.sh/release-namespace", "").startswith(prefix):
            yield f"{item['kind']}/{meta['name']}"
