# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus adapter beside the cluster, which serves an autoscaler what a Prometheus knows."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.controllers import image
from e2e.disruption import CONTROL_PLANE
from e2e.kube import ENVIRONMENT, Namespace, Object, first_address_is_ipv6, in_url, run, succeed, wait_until
from e2e.prometheus import BESIDE
from support.ports import free_port

IMAGE = image("prometheus-adapter")
GROUP, SERVED = "custom.metrics.k8s.io", "v1beta2"
AUTOSCALER = {"kind": "ServiceAccount", "name": "horizontal-pod-autoscaler", "namespace": "kube-system"}
RBAC = "rbac.authorization.k8s.io"
FORGOTTEN = "elasticjob-tests"  # the label of what a namespace does not take along
READY_SECONDS = 60


@contextmanager
def adapter(home: Namespace, folder: Path, rules: Path, prometheus: str) -> Iterator[None]:
    """By these rules, for the Prometheus at that URL; its Service is in `home`. It listens where only the cluster's own
    nodes reach it."""
    (folder / "adapter.yaml").write_text(rules.read_text())
    (folder / "kubeconfig").write_bytes(Path(ENVIRONMENT["KUBECONFIG"]).read_bytes())
    gateways = succeed("docker", "network", "inspect", "kind", "--format={{range .IPAM.Config}}{{.Gateway}} {{end}}")
    gateway = next(address for address in gateways.split() if (":" in address) == first_address_is_ipv6())
    port, name = free_port(), f"elasticjob-adapter-{secrets.token_hex(4)}"
    files = [f"--{use}-kubeconfig={BESIDE}/kubeconfig" for use in ("lister", "authentication", "authorization")]
    options = [
        *files,
        f"--config={BESIDE}/adapter.yaml",
        f"--prometheus-url={prometheus}",
        f"--bind-address={gateway}",
        f"--secure-port={port}",
        "--cert-dir=/certificate",
        "--metrics-relist-interval=2s",
    ]
    container = ["docker", "run", "--detach", "--rm", f"--name={name}", "--network=host", "--user=0:0"]
    succeed(*container, f"--volume={folder}:{BESIDE}:ro", IMAGE, *options)
    try:
        home.apply(*_service(gateway, port))
        _wait_for_service(home)
        home.apply(*_served_by(home))
        path = f"/apis/{GROUP}/{SERVED}"
        wait_until("the API of metrics", lambda: not _ask(path), READY_SECONDS, lambda: run("docker", "logs", name))
        yield
    finally:
        forget()
        run("docker", "rm", "--force", name)


def forget() -> None:
    """Take the API away before the namespace of its Service goes: none can go while an API does not answer."""
    kinds = "apiservices,clusterroles,clusterrolebindings"
    run("kubectl", "delete", kinds, f"--selector={FORGOTTEN}", "--timeout=30s")


def _wait_for_service(home: Namespace) -> None:
    """Until kube-proxy knows it, its address is somebody's outside of the cluster, who may answer: the API server would
    keep that connection."""
    address = home.get("service", "adapter")["spec"]["clusterIP"]
    url = f"https://{in_url(address)}/healthz"
    ask = ("docker", "exec", CONTROL_PLANE, "curl", "--silent", "--insecure", "--max-time", "5", url)
    wait_until("the Service of metrics", lambda: run(*ask).output == "ok", READY_SECONDS, lambda: run(*ask))


def _ask(path: str) -> str:
    return run("kubectl", "get", "--raw", path, "--request-timeout=10s").errors


def _service(address: str, port: int) -> list[Object]:
    meta = {"name": "adapter", "labels": {"kubernetes.io/service-name": "adapter"}}
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    slice_of = {
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": ports,
    }
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{**ports[0], "port": 443}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta, **slice_of},
    ]


def _served_by(home: Namespace) -> list[Object]:
    """The API, and that autoscalers may read it."""
    labels = {FORGOTTEN: "metrics"}
    meta = {"name": "elasticjob-tests-metrics", "labels": labels}
    api = {
        "group": GROUP,
        "version": SERVED,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,  # its certificate is one that it has made for itself
        "service": {"name": "adapter", "namespace": home.name, "port": 443},
    }
    rules = [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "list"]}]
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": meta["name"]}
    named = {"name": f"{SERVED}.{GROUP}", "labels": labels}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": [AUTOSCALER],
        },
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": named, "spec": api},
    ]
