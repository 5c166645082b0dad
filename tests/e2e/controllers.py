# SPDX-License-Identifier: Apache-2.0
"""The controllers of others that run beside ours, compiled for the cluster from their Go modules."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import yaml

from e2e.disruption import CONTROL_PLANE
from e2e.kube import CLUSTER, Failed, Namespace, Object, run, succeed, wait_until
from support.others import chart, version

SECONDS = 60
# whatever befalls the other nodes, and whoever looks for room there
ON_THE_CONTROL_PLANE: Object = {
    "nodeSelector": {"kubernetes.io/hostname": CONTROL_PLANE},
    "tolerations": [{"operator": "Exists"}],
}


def image(name: str) -> str:
    """Its image, as the set-up names it."""
    return f"elasticjob/{name}:{version(name)}"


@contextmanager
def installed(home: Namespace, name: str, values: Mapping[str, object]) -> Iterator[None]:
    """A release of its name, from its chart, in the namespace `home`. What the chart's CRDs define stays."""
    succeed("kind", "load", "docker-image", image(name), f"--name={CLUSTER}", f"--nodes={CONTROL_PLANE}")
    here = ["--namespace", home.name]
    try:
        succeed("helm", "install", name, str(chart(name)), *here, "--values=-", stdin=yaml.safe_dump(values))
        yield
    finally:
        run("helm", "uninstall", name, *here, "--wait", f"--timeout={SECONDS}s", seconds=SECONDS)


def get_ready(home: Namespace, deployment: str, secret: str) -> None:
    """It makes its certificate itself, and goes on once the kubelet has brought it the Secret, which may take that two
    minutes; a change of the pod has it look at once, though perhaps at the Secret of before."""
    certificate = ("get", "secret", secret, "--output=jsonpath={.data.tls\\.crt}")
    wait_until(f"the certificate in {secret}", lambda: home.try_kubectl(*certificate).output, SECONDS)

    def serves() -> bool:
        home.kubectl("annotate", "pods", "--all", "--overwrite", f"elasticjob-tests={time.monotonic():.0f}")
        return not home.try_kubectl("rollout", "status", f"deployment/{deployment}", "--timeout=5s").code

    wait_until(f"{deployment} to serve", serves, SECONDS)


def is_taken(home: Namespace, *objects: Object, dry_run: bool = False) -> bool:
    """Whether its webhooks are reached, and let these objects pass."""
    try:
        home.apply(*objects, dry_run=dry_run)
    except Failed:
        return False
    return True


def let_go(*kinds: str) -> None:
    """Delete what a controller keeps by finalizers, while it is there; take them away where it is not.

    `kinds` are the names of CRDs, in the order in which their objects go.
    """
    there = run("kubectl", "get", "crd", "--output=jsonpath={.items[*].metadata.name}").output.split()
    for kind in (one for one in kinds if one in there):
        run("kubectl", "delete", kind, "--all", "--all-namespaces", "--timeout=20s")
        left = "jsonpath={range .items[*]}{.metadata.name} {.metadata.namespace}{'\\n'}{end}"
        for line in run("kubectl", "get", kind, "--all-namespaces", f"--output={left}").output.splitlines():
            name, *inside = line.split()
            where = [f"--namespace={inside[0]}"] if inside else []
            run("kubectl", "patch", kind, name, *where, "--type=merge", '--patch={"metadata":{"finalizers":null}}')


def forget(*kinds: str) -> None:
    """Delete CRDs, which helm leaves, and before them their objects."""
    let_go(*kinds)
    run("kubectl", "delete", "crd", *kinds, "--ignore-not-found", f"--timeout={SECONDS}s", seconds=SECONDS)
