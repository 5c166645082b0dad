# SPDX-License-Identifier: Apache-2.0
"""Metrics over TLS for those who may read them, as a Prometheus asks that follows the chart's ServiceMonitor; and the
log of an operator that writes JSON."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from e2e.kube import ENVIRONMENT, Namespace, Object, kubectl, succeed, wait_until
from e2e.prometheus import BESIDE, configured
from e2e.release import CHART, confined, helm, removed
from support.canned_server import write_authority
from support.ports import free_port

pytestmark = [pytest.mark.patient, pytest.mark.on_workers, pytest.mark.real, pytest.mark.extended]

RELEASE = "secured"
OPERATOR = f"deployment/{RELEASE}-elasticjob-operator"
SECRET = "metrics"
SETTINGS = f"metrics.secure.enabled=true,metrics.secure.certificateSecret={SECRET},logFormat=json"
REVOKED_SECONDS = 70  # documented: a minute


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("authority") / "ca.crt"


@pytest.fixture(scope="module")
def aside(operator: Namespace, module_namespace: Namespace, authority: Path) -> Iterator[Namespace]:
    """A release of its own for a namespace without jobs: its operator leads there and has nothing to do."""
    namespace, together = module_namespace, authority.with_name("pair")
    write_authority(authority, together, x509.DNSName(endpoint_of(namespace)["tlsConfig"]["serverName"]))
    certificate, mark, key = together.read_text().partition("-----BEGIN PRIVATE KEY-----")
    pair = {"tls.crt": certificate, "tls.key": mark + key}
    meta = {"metadata": {"name": SECRET}, "type": "kubernetes.io/tls"}
    namespace.apply({"apiVersion": "v1", "kind": "Secret", "stringData": pair, **meta})
    with removed(RELEASE, namespace):
        helm("install", RELEASE, namespace, CHART, "--wait", *confined(namespace, replicas=1), "--set", SETTINGS)
        yield namespace


def endpoint_of(namespace: Namespace) -> Object:
    """What the release's ServiceMonitor says of its port."""
    monitored = ["--set", f"{SETTINGS},metrics.serviceMonitor.enabled=true"]
    of_the_monitor = ["--show-only", "templates/metrics/monitors.yaml", "--kube-version", "1.35"]
    rendered = succeed("helm", "template", RELEASE, CHART, "--namespace", namespace.name, *of_the_monitor, *monitored)
    monitor = yaml.safe_load(rendered)
    endpoint: Object = monitor["spec"]["endpoints"][0]
    return endpoint


@contextmanager
def forwarded(namespace: Namespace, port: int) -> Iterator[str]:
    """The operator's port of secured metrics, on loopback: TLS and token go through as they are."""
    local = free_port()
    # kubectl ends when one connection is reset, as by a scrape that was cut off
    forward = f"kubectl port-forward --namespace {namespace.name} {OPERATOR} {local}:{port}"
    shell = ["sh", "-c", f"while :; do {forward}; sleep 0.2; done"]
    with subprocess.Popen(shell, env=ENVIRONMENT, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield f"127.0.0.1:{local}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)


@contextmanager
def reader(namespace: Namespace, account: str) -> Iterator[None]:
    """The account may read the release's metrics, as docs/metrics.md has it."""
    name, role = f"{namespace.name}-metrics", f"{RELEASE}-elasticjob-metrics-reader"
    to = f"--serviceaccount={namespace.name}:{account}"
    kubectl("create", "clusterrolebinding", name, f"--clusterrole={role}", to)
    try:
        yield
    finally:
        kubectl("delete", "clusterrolebinding", name)


def test_who_may_read_the_metrics_reads_them(aside: Namespace, authority: Path, tmp_path: Path) -> None:
    shutil.copy(authority, tmp_path)
    aside.kubectl("create", "serviceaccount", "prometheus")
    (tmp_path / "token").write_text(aside.kubectl("create", "token", "prometheus"))
    endpoint = endpoint_of(aside)
    with forwarded(aside, 8443) as address:
        scrape = {
            "job_name": "operator",
            "scheme": endpoint["scheme"],
            "authorization": {"credentials_file": f"{BESIDE}/token"},
            "tls_config": {"ca_file": f"{BESIDE}/ca.crt", "server_name": endpoint["tlsConfig"]["serverName"]},
            "static_configs": [{"targets": [address]}],
        }
        with configured(tmp_path, scrape_configs=[scrape]) as found:

            def health() -> str:
                return "".join(found.targets().get("operator", ()))

            wait_until("a reader without the right to be refused", lambda: "403" in health(), 60, health)
            with reader(aside, "prometheus"):
                wait_until("one with it to be answered", lambda: health() == "up", REVOKED_SECONDS, health)
                wait_until("a gauge", lambda: found.query("elasticjob_leader"), 30)
            wait_until("the right to end", lambda: "403" in health(), REVOKED_SECONDS, health)


def test_the_log_is_an_object_a_line(aside: Namespace) -> None:
    lines = [json.loads(line) for line in aside.kubectl("logs", OPERATOR).splitlines()]
    assert lines
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
