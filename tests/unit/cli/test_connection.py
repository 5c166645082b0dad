# SPDX-License-Identifier: Apache-2.0
"""Which cluster is asked, by kubeconfigs on paper: the one that kubectl would ask."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from elasticjob_cli import completion
from elasticjob_cli.app import cli
from elasticjob_cli.cluster import access
from elasticjob_cli.cluster.access import KubectlFlags, access_of
from elasticjob_cli.cluster.connection import Cluster
from elasticjob_cli.cluster.credentials import log_in
from elasticjob_cli.errors import CliError, Exit


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and no KUBECONFIG."""
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
    return cluster._transport.server, cluster.namespace


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
    assert asked(Cluster.connect(KubectlFlags())) == (f"http://{name}", f"of-{name}")
    assert asked(Cluster.connect(KubectlFlags(context="b", namespace="own"))) == ("http://b", "own")


def test_an_empty_kubeconfig_variable_counts_as_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / ".kube" / "config", "a", **{"current-context": "a"})
    monkeypatch.setenv("KUBECONFIG", "")
    assert asked(Cluster.connect(KubectlFlags())) == ("http://a", "of-a")


def test_contexts_are_completed_though_none_is_current(home: Path) -> None:
    file = write(home / "a", "away")
    assert completion.answer(cli, ["why", "--kubeconfig", str(file), "--context", "a"]) == ["away", ":4"]


@pytest.mark.parametrize(("written", "namespace"), [("team\n", "team"), (None, "default")])
def test_a_pod_asks_for_its_own_namespace(
    home: Path, monkeypatch: pytest.MonkeyPatch, written: str | None, namespace: str
) -> None:
    (home / "token").write_text("of the pod")
    if written is not None:
        (home / "namespace").write_text(written)
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", home)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert asked(Cluster.connect(KubectlFlags())) == ("https://[fd00::1]:443", namespace)
    assert asked(Cluster.connect(KubectlFlags(namespace="named"))) == ("https://[fd00::1]:443", "named")
    assert log_in(access_of(KubectlFlags())).authorization == "Bearer of the pod"


def test_no_cluster_is_told_with_what_would_name_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", home)
    done = CliRunner().invoke(cli, ["why", "a"])
    assert (done.exit_code, "name one with --kubeconfig, --context, KUBECONFIG or --server" in done.stderr) == (1, True)


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


PLACE = KubectlFlags(None, "c", "ml")


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["-n", "ml", "why", "a"], PLACE),
        (["--namespace=ml", "why", "a"], PLACE),
        (["why", "a", "-n", "ml"], PLACE),
        (["why", "-nml", "a"], PLACE),
        (["-n", "other", "why", "a", "-n", "ml"], PLACE),
        (["-n", "status", "why", "a"], PLACE._replace(namespace="status")),
        (["why", "a"], PLACE._replace(namespace=None)),
        (["-n", "ml", "-o", "json", "why", "a"], PLACE),
        (["-n", "ml", "-A", "status"], PLACE),
        (["-n", "ml", "--operator", "why/why", "why", "a"], PLACE),
        (["-n", "ml", "-s", "https://b", "--token", "t", "why", "a"], PLACE._replace(server="https://b", token="t")),
        (
            ["-n", "ml", "--as", "jane", "--as-group=a", "status", "--as-group", "b", "--as-uid", "7"],
            PLACE._replace(as_user="jane", as_groups=("a", "b"), as_uid="7"),
        ),
        (
            ["-n", "ml", "why", "a", "--certificate-authority", "ca.crt", "--request-timeout", "1m30s"],
            PLACE._replace(certificate_authority="ca.crt", request_seconds=90.0),
        ),
        (
            ["-n", "ml", "--insecure-skip-tls-verify", "--request-timeout=0", "logs", "a"],
            PLACE._replace(insecure=True, request_seconds=None),
        ),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_kubectls_flags_are_taken_before_the_command_and_after_it(
    monkeypatch: pytest.MonkeyPatch, words: list[str], place: KubectlFlags
) -> None:
    places: list[KubectlFlags] = []

    def connect(place: KubectlFlags) -> Cluster:
        places.append(place)
        raise CliError("no cluster")

    monkeypatch.setattr(Cluster, "connect", connect)
    assert CliRunner().invoke(cli, ["--context", "c", *words]).stderr == "error: no cluster\n"
    assert places == [place]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["wy", "status"], "No such command 'wy'"),
        (["--nonsense", "status"], "No such option '--nonsense'"),
        (["-n", "ml"], "Missing command"),
    ],
)
def test_what_is_no_command_is_told(words: list[str], sentence: str) -> None:
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, sentence in done.stderr) == (Exit.WRONG_COMMAND_LINE, True), done.stderr


def test_the_words_of_a_script_are_its_own() -> None:
    words = ["train.py", "-n", "status", "--as", "x"]
    done = CliRunner().invoke(cli, ["run", "a", "--image=b", "--dry-run", "--", *words])
    command = yaml.safe_load(done.stdout)["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command == ["torchrun", *words]
