# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus beside the cluster, which reads the metrics of pods through the API server."""

import base64
import json
import secrets
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

import yaml

from e2e.kube import ENVIRONMENT, Object, run, succeed, wait_until
from support.ports import free_port

IMAGE = "elasticjob/prometheus:dev"
SCRAPE_SECONDS = 1
BESIDE = "/config"


class Prometheus(NamedTuple):
    url: str

    def ask(self, path: str, **query: str) -> Any:
        """The `data` of an answer of its API; fails with the reason of a refusal."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {query}: {error.read().decode()}") from None

    def query(self, expression: str) -> list[Object]:
        found: list[Object] = self.ask("query", query=expression)["result"]
        return found

    def targets(self) -> dict[str, list[str]]:
        """The health of all targets, by scrape job."""
        found: dict[str, list[str]] = {}
        for target in self.ask("targets", state="active")["activeTargets"]:
            found.setdefault(target["scrapePool"], []).append(target["health"] + target["lastError"])
        return found


@contextmanager
def prometheus(folder: Path, rules: Path, workers: str) -> Iterator[Prometheus]:
    """One that asks the operators, and the sidecars of the namespace `workers`, once a second."""
    server = _credentials(folder)
    (folder / "alerts.yaml").write_text(rules.read_text())
    pods = [_pods(server, "operator", "elasticjob-system", "operator")]
    pods += [_pods(server, "workers", workers, "elasticjob-sidecar")]
    with configured(folder, rule_files=[f"{BESIDE}/alerts.yaml"], scrape_configs=pods) as found:
        yield found


@contextmanager
def configured(folder: Path, **config: Any) -> Iterator[Prometheus]:
    """One of that configuration, which may name the files of `folder` as of `BESIDE`."""
    folder.chmod(0o755)
    often = {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"}
    (folder / "prometheus.yaml").write_text(json.dumps({"global": often, **config}))
    port, name = free_port(), f"elasticjob-prometheus-{secrets.token_hex(4)}"
    options = [
        f"--config.file={BESIDE}/prometheus.yaml",
        "--storage.tsdb.path=/tmp/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    container = ["docker", "run", "--detach", "--rm", f"--name={name}", "--network=host", "--user=0:0"]
    succeed(*container, f"--volume={folder}:{BESIDE}:ro", IMAGE, "prometheus", *options)
    found = Prometheus(f"http://127.0.0.1:{port}")
    try:
        wait_until("Prometheus to be ready", lambda: _ready(found), 60, lambda: run("docker", "logs", name).errors)
        yield found
    finally:
        run("docker", "rm", "--force", name)


def promtool(folder: Path, *command: str) -> str:
    """Run promtool on what is in `folder`. Raises Failed, with what it says."""
    folder.chmod(0o755)
    container = ["docker", "run", "--rm", "--network=none", "--user=0:0", f"--volume={folder}:{BESIDE}:ro"]
    return succeed(*container, f"--workdir={BESIDE}", IMAGE, "promtool", *command)


def _ready(found: Prometheus) -> bool:
    try:
        with urllib.request.urlopen(f"{found.url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _credentials(folder: Path) -> str:
    """Writes those of the cluster's administrator into `folder`; returns the API server's address."""
    kubeconfig = yaml.safe_load(Path(ENVIRONMENT["KUBECONFIG"]).read_text())
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    for name, text in (
        ("ca.crt", cluster["certificate-authority-data"]),
        ("tls.crt", user["client-certificate-data"]),
        ("tls.key", user["client-key-data"]),
    ):
        (folder / name).write_bytes(base64.b64decode(text))
    return str(cluster["server"]).removeprefix("https://")


def _pods(server: str, name: str, namespace: str, container: str) -> Object:
    """As a ServiceMonitor or PodMonitor would have it, but through the API server's proxy."""
    files = {"ca_file": "ca.crt", "cert_file": "tls.crt", "key_file": "tls.key"}
    tls = {setting: f"{BESIDE}/{file}" for setting, file in files.items()}
    meta = "__meta_kubernetes_"
    ports = [f"{meta}namespace", f"{meta}pod_name", f"{meta}pod_container_port_number"]
    return {
        "job_name": name,
        "kubernetes_sd_configs": [
            {"role": "pod", "api_server": f"https://{server}", "tls_config": tls, "namespaces": {"names": [namespace]}}
        ],
        "scheme": "https",
        "tls_config": tls,
        "relabel_configs": [
            {"action": "keep", "source_labels": [f"{meta}pod_container_port_name"], "regex": "health"},
            {"action": "keep", "source_labels": [f"{meta}pod_container_name"], "regex": container},
            {"source_labels": [f"{meta}pod_phase"], "regex": "Succeeded|Failed", "action": "drop"},
            {"source_labels": [f"{meta}namespace"], "target_label": "namespace"},
            {"source_labels": [f"{meta}pod_name"], "target_label": "pod"},
            {
                "source_labels": ports,
                "separator": ";",
                "regex": "(.*);(.*);(.*)",
                "replacement": "/api/v1/namespaces/$1/pods/$2:$3/proxy/metrics",
                "target_label": "__metrics_path__",
            },
            {"source_labels": [f"{meta}pod_name"], "target_label": "instance"},
            {"target_label": "__address__", "replacement": server},
        ],
    }
