# SPDX-License-Identifier: Apache-2.0
"""Which cluster is asked, by kubeconfigs on paper: the one that kubectl would ask."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from kubernetes import client, config

from elasticjob.kube.names import user_agent
from elasticjob_cli import completion
from elasticjob_cli.app import cli
from elasticjob_cli.cluster import connection
from elasticjob_cli.cluster.connection import Cluster, Place
from elasticjob_cli.errors import CliError, Exit
from support.silent_server import SilentServer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and no KUBECONFIG. The client keeps the one that the tests were started with."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def write(path: Path, name: str, **more: Any) -> Path:
    """A kubeconfig with one context, its cluster and its namespace, all of that name."""
    body = {
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}"}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}],
        **more,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(body))
    return path


def asked(cluster: Cluster) -> tuple[str, str]:
    return cluster._core.api_client.configuration.host, cluster.namespace


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ({"current-context": "a"}, {"current-context": "b"}, "a"),
        ({"current-context": ""}, {"current-context": "b"}, "b"),
        ({"current-context": "b"}, {}, "b"),
        ({"current-context": "a"}, {"current-context": ""}, "a"),
    ],
)
def test_the_first_current_context_of_several_files_counts(
    home: Path, monkeypatch: pytest.MonkeyPatch, first: dict[str, str], second: dict[str, str], name: str
) -> None:
    (home / "empty").touch()
    files = [home / "missing", home / "empty", write(home / "a", "a", **first), write(home / "b", "b", **second)]
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)))
    assert asked(Cluster.connect(Place())) == (f"http://{name}", f"of-{name}")
    assert asked(Cluster.connect(Place(context="b", namespace="own"))) == ("http://b", "own")


def test_an_empty_kubeconfig_variable_counts_as_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / ".kube" / "config", "a", **{"current-context": "a"})
    monkeypatch.setenv("KUBECONFIG", "")
    assert asked(Cluster.connect(Place())) == ("http://a", "of-a")


def test_contexts_are_completed_though_none_is_current(home: Path) -> None:
    file = write(home / "a", "away")
    assert completion.answer(cli, ["why", "--kubeconfig", str(file), "--context", "a"]) == ["away", ":4"]


@pytest.mark.parametrize(("written", "namespace"), [("team\n", "team"), (None, "default")])
def test_a_pod_asks_for_its_own_namespace(
    home: Path, monkeypatch: pytest.MonkeyPatch, written: str | None, namespace: str
) -> None:
    def inside(client_configuration: Any) -> None:
        client_configuration.host = "https://inside"

    if written is not None:
        (home / "namespace").write_text(written)
    monkeypatch.setattr(config, "load_incluster_config", inside)
    monkeypatch.setattr(connection, "NAMESPACE_FILE", home / "namespace")
    assert asked(Cluster.connect(Place())) == ("https://inside", namespace)
    assert asked(Cluster.connect(Place(namespace="named"))) == ("https://inside", "named")


@pytest.mark.parametrize(
    "body",
    [
        b"contexts: [",
        b"- a list",
        b"\xff\xfe\xfa",
        b"contexts: 3",
        b"contexts: [{context: {}}]",
        b"contexts: [a]",
        b"contexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [3]\ncurrent-context: a",
        b"current-context: a",
        None,
    ],
    ids=["no YAML", "a list", "no text", "a number", "no name", "a word", "clusters", "no such context", "a folder"],
)
@pytest.mark.parametrize("named", [True, False], ids=["named", "at home"])
def test_a_kubeconfig_that_cannot_be_used_is_told(home: Path, body: bytes | None, named: bool) -> None:
    path = home / ".kube" / "config"
    path.parent.mkdir()
    path.write_bytes(body) if body is not None else path.mkdir()
    done = CliRunner().invoke(cli, ["why", "a", *([f"--kubeconfig={path}"] if named else [])])
    assert done.exit_code == Exit.REFUSED
    assert re.fullmatch("error: the kubeconfig cannot be used: .+; see --kubeconfig and --context\n", done.stderr)


@pytest.mark.parametrize(
    ("words", "namespace"),
    [
        (["-n", "ml", "why", "a"], "ml"),
        (["--namespace=ml", "why", "a"], "ml"),
        (["why", "a", "-n", "ml"], "ml"),
        (["-n", "other", "why", "a", "-n", "ml"], "ml"),
        (["why", "a"], None),
    ],
)
def test_the_place_may_be_said_before_the_command_as_to_kubectl(
    monkeypatch: pytest.MonkeyPatch, words: list[str], namespace: str | None
) -> None:
    places: list[Place] = []

    def connect(place: Place) -> Cluster:
        places.append(place)
        raise CliError("no cluster")

    monkeypatch.setattr(Cluster, "connect", connect)
    assert CliRunner().invoke(cli, ["--context", "c", *words]).stderr == "error: no cluster\n"
    assert places == [Place(None, "c", namespace)]


async def test_the_api_server_is_told_who_asks() -> None:
    async with SilentServer(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}") as server:
        api = client.ApiClient(client.Configuration(host=server.url))
        await asyncio.to_thread(Cluster(api, "ml").job, "digits")
        api.rest_client.pool_manager.clear()
    assert f"User-Agent: {user_agent('cli')}\r\n" in server.heard
