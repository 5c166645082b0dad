# SPDX-License-Identifier: Apache-2.0
"""Requests on a real socket: who asks, how the server is known, and how a login is proved."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticjob.kube.names import user_agent
from elasticjob_cli.cluster.access import KubectlFlags
from elasticjob_cli.cluster.connection import Cluster
from elasticjob_cli.cluster.transport import NoAnswer, RequestRefused
from elasticjob_cli.errors import CliError, Exit
from support.stub_api import Pair, Stub, new_pair, stub_api

DIGITS = "/apis/elasticjob.io/v1alpha1/namespaces/ml/elasticjobs/digits"
JOB = {"metadata": {"name": "digits"}}
ANSWERS = {DIGITS: JOB}
VERSION = "client.authentication.k8s.io/v1"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return new_pair(tmp_path_factory.mktemp("server"), "api.test")


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return new_pair(tmp_path_factory.mktemp("client"), "jane")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def cluster_of(folder: Path, server: str, cluster: Any = None, user: Any = None, **place: Any) -> Cluster:
    """By a kubeconfig with these."""
    body = {
        "clusters": [{"name": "a", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "a", "user": user or {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "ml"}}],
        "current-context": "a",
    }
    (folder / "config").write_text(yaml.safe_dump(body))
    return Cluster.connect(KubectlFlags(str(folder / "config"), **place))


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def heard(stub: Stub, name: str) -> list[str]:
    return stub.asked[-1].headers.get_all(name) or []


def test_the_api_server_is_told_who_asks_and_tells_the_time(tmp_path: Path) -> None:
    with stub_api(ANSWERS) as stub:
        cluster = cluster_of(tmp_path, stub.url)
        assert cluster.job("digits") == JOB
    assert heard(stub, "User-Agent") == [user_agent("cli")]
    assert cluster.now.isoformat() == "2026-11-22T12:00:00+00:00"


def test_a_server_with_a_path_keeps_it(tmp_path: Path) -> None:
    with stub_api({f"/k8s/clusters/c1{DIGITS}": JOB}) as stub:
        assert cluster_of(tmp_path, f"{stub.url}/k8s/clusters/c1/").job("digits") == JOB


def test_who_acts_as_another_says_so(tmp_path: Path) -> None:
    with stub_api(ANSWERS) as stub:
        cluster_of(tmp_path, stub.url, as_user="jane", as_groups=("a", "b"), as_uid="7").job("digits")
        assert heard(stub, "Impersonate-User") == ["jane"]
        assert heard(stub, "Impersonate-Group") == ["a", "b"]
        assert heard(stub, "Impersonate-Uid") == ["7"]
        cluster_of(tmp_path, stub.url, user={"as": "joe", "as-user-extra": {"team": ["ml"]}}).job("digits")
        assert (heard(stub, "Impersonate-User"), heard(stub, "Impersonate-Extra-team")) == (["joe"], ["ml"])
    with pytest.raises(CliError, match="--as-group and --as-uid go with --as") as error:
        cluster_of(tmp_path, stub.url, as_groups=("a",))
    assert error.value.code == Exit.WRONG_COMMAND_LINE


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        ({"token": "abc"}, "Bearer abc"),
        ({"tokenFile": "token"}, "Bearer of a file"),
        ({"username": "jane", "password": "secret"}, f"Basic {base64.b64encode(b'jane:secret').decode()}"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "a.b.c"}}}, "Bearer a.b.c"),
    ],
    ids=["token", "file", "password", "oidc"],
)
def test_a_user_proves_who_they_are(tmp_path: Path, user: dict[str, Any], authorization: str) -> None:
    (tmp_path / "token").write_text("of a file\n")
    with stub_api(ANSWERS) as stub:
        cluster_of(tmp_path, stub.url, user=user).job("digits")
        assert heard(stub, "Authorization") == [authorization]
        cluster_of(tmp_path, stub.url, user=user, token="named").job("digits")
        assert heard(stub, "Authorization") == ["Bearer named"]


def test_a_token_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    with stub_api(ANSWERS) as stub:
        cluster = cluster_of(tmp_path, stub.url, user={"tokenFile": "token"})
        cluster.job("digits")
        (tmp_path / "token").write_text("second")
        cluster.job("digits")
        assert heard(stub, "Authorization") == ["Bearer second"]


@pytest.mark.parametrize("form", ["files", "data", "flag"])
def test_a_server_is_known_by_its_authority(tmp_path: Path, pair: Pair, form: str) -> None:
    (tmp_path / "ca.crt").write_bytes(pair.certificate.read_bytes())
    cluster = {"files": {"certificate-authority": "ca.crt"}, "data": {"certificate-authority-data": encoded(pair[0])}}
    flags = {"flag": {"certificate_authority": str(pair.certificate)}}
    with stub_api(ANSWERS, pair=pair) as stub:
        assert cluster_of(tmp_path, stub.url, cluster.get(form), **flags.get(form, {})).job("digits") == JOB
        with pytest.raises(NoAnswer, match="certificate verify failed"):
            cluster_of(tmp_path, stub.url).job("digits")


def test_any_certificate_is_taken_where_that_was_asked_for(tmp_path: Path, pair: Pair) -> None:
    with stub_api(ANSWERS, pair=pair) as stub:
        assert cluster_of(tmp_path, stub.url, insecure=True).job("digits") == JOB
        assert cluster_of(tmp_path, stub.url, {"insecure-skip-tls-verify": True}).job("digits") == JOB


@pytest.mark.parametrize("name", ["api.test", "other.test"])
def test_a_server_may_go_by_another_name(tmp_path: Path, pair: Pair, name: str) -> None:
    given = {"certificate-authority-data": encoded(pair.certificate), "tls-server-name": name}
    with stub_api(ANSWERS, pair=pair) as stub:
        cluster = cluster_of(tmp_path, stub.url, given)
        if name == "api.test":
            assert cluster.job("digits") == JOB
            return
        with pytest.raises(NoAnswer, match=r"other\.test"):
            cluster.job("digits")


@pytest.mark.parametrize("form", ["files", "data", "exec", "none"])
def test_a_user_proves_who_they_are_by_a_certificate(tmp_path: Path, pair: Pair, mine: Pair, form: str) -> None:
    status = {"clientCertificateData": mine.certificate.read_text(), "clientKeyData": mine.key.read_text()}
    user: dict[str, Any] = {
        "files": {"client-certificate": str(mine.certificate), "client-key": str(mine.key)},
        "data": {"client-certificate-data": encoded(mine.certificate), "client-key-data": encoded(mine.key)},
        "exec": login(tmp_path, status),
        "none": {},
    }[form]
    with stub_api(ANSWERS, pair=pair, clients=mine.certificate) as stub:
        cluster = cluster_of(tmp_path, stub.url, {"certificate-authority-data": encoded(pair.certificate)}, user)
        if form != "none":
            assert cluster.job("digits") == JOB
            return
        with pytest.raises(NoAnswer):
            cluster.job("digits")


def login(folder: Path, status: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A user whose login program says that, and notes how it was called in `calls`."""
    said = json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})
    program = folder / "login"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"open({str(folder / 'calls')!r}, 'a').write(os.environ['KUBERNETES_EXEC_INFO'] + '\\n')\n"
        f"print({said!r}.replace('ARGUMENT', sys.argv[1]).replace('VARIABLE', os.environ['FROM']))\n"
    )
    program.chmod(0o755)
    own = {"apiVersion": VERSION, "command": "./login", "args": ["word"], "env": [{"name": "FROM", "value": "env"}]}
    return {"exec": own | more}


def test_a_login_program_says_the_token(tmp_path: Path) -> None:
    user = login(tmp_path, {"token": "ARGUMENT-VARIABLE"}, provideClusterInfo=True)
    with stub_api(ANSWERS) as stub:
        cluster = cluster_of(tmp_path, stub.url, user=user)
        cluster.job("digits")
        cluster.job("digits")
    assert heard(stub, "Authorization") == ["Bearer word-env"]
    (call,) = map(json.loads, (tmp_path / "calls").read_text().splitlines())
    assert call == {
        "apiVersion": VERSION,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": stub.url}},
    }


def test_a_login_that_has_expired_is_done_anew(tmp_path: Path) -> None:
    user = login(tmp_path, {"token": "abc", "expirationTimestamp": "2026-01-01T00:00:00Z"})
    with stub_api(ANSWERS) as stub:
        cluster = cluster_of(tmp_path, stub.url, user=user)
        cluster.job("digits")
        cluster.job("digits")
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("status", "more", "sentence"),
    [
        ({}, {}, f"login printed no ExecCredential of {VERSION}"),
        ({"clientCertificateData": "PEM"}, {}, "printed no ExecCredential"),
        ({"token": "a"}, {"command": "./nothing", "installHint": "install it"}, r"cannot be run .*; install it"),
        ({"token": "a"}, {"env": []}, "failed with exit code 1"),
        ({"token": "a"}, {"interactiveMode": "Always"}, "needs a terminal"),
        (
            {"token": "a"},
            {"apiVersion": "v1"},
            "needs a command, and an apiVersion of client",
        ),
    ],
    ids=["nothing", "no key", "no program", "failed", "terminal", "version"],
)
def test_a_login_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: dict[str, Any], more: dict[str, Any], sentence: str
) -> None:
    with stub_api(ANSWERS) as stub, pytest.raises(CliError, match=sentence):
        cluster_of(tmp_path, stub.url, user=login(tmp_path, status, **more)).job("digits")


@pytest.mark.parametrize(
    ("cluster", "user", "sentence"),
    [
        ({"certificate-authority-data": "PEM?"}, {}, "certificate-authority-data is not base64"),
        ({"certificate-authority": "away"}, {}, "certificate-authority cannot be read"),
        ({}, {"client-certificate-data": "YQ==", "client-key-data": "YQ=="}, "not PEM"),
        ({}, {"tokenFile": "away"}, r"users\[a\]\.user\.tokenFile cannot be read"),
        ({}, {"token": 3}, r"users\[a\]\.user\.token is a number and not a text"),
        ({"insecure-skip-tls-verify": "yes"}, {}, "is a text and neither true nor false"),
        ({}, {"auth-provider": {"name": "gcp"}}, r"'gcp' has no token here: log in by users\[\]\.user\.exec"),
        ({"server": "ftp://a"}, {}, "neither an http nor an https address"),
    ],
    ids=["authority", "no file", "certificate", "token file", "token", "flag", "provider", "server"],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CliError, match=sentence):
        cluster_of(tmp_path, "https://127.0.0.1:1", cluster, user).job("digits")


def test_a_proxy_is_asked_in_place_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stub_api({DIGITS: JOB}) as proxy:
        named = {"proxy-url": proxy.url.replace("//", "//me:secret@")}
        assert cluster_of(tmp_path, "http://api.test:8080", named).job("digits") == JOB
        assert proxy.paths == [f"http://api.test:8080{DIGITS}"]
        assert heard(proxy, "Proxy-Authorization") == [f"Basic {base64.b64encode(b'me:secret').decode()}"]
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert cluster_of(tmp_path, "http://other.test").job("digits") == JOB
        assert proxy.paths[-1] == f"http://other.test{DIGITS}"


def test_refusals_are_sentences(tmp_path: Path) -> None:
    with stub_api({DIGITS: 401, f"{DIGITS}s": b"<html>"}) as stub:
        cluster = cluster_of(tmp_path, stub.url)
        with pytest.raises(RequestRefused, match=r"does not know who you are .*: log in anew"):
            cluster.job("digits")
        with pytest.raises(CliError, match=f"what answers at {stub.url} is no API server"):
            cluster.job("digitss")
        with pytest.raises(RequestRefused, match="not found") as error:
            cluster.job("other")
        assert error.value.code == Exit.NOT_FOUND


def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match=r"the API server does not answer: .*; see --kubeconfig and --context"):
        cluster_of(tmp_path, "http://127.0.0.1:1").job("digits")


def test_all_pages_of_a_list_are_read(tmp_path: Path) -> None:
    with stub_api() as stub:
        path = "/apis/elasticjob.io/v1alpha1/namespaces/ml/elasticjobs"
        stub.answers[path] = {"items": [{"a": 1}], "metadata": {"continue": ""}}
        cluster = cluster_of(tmp_path, stub.url)
        assert cluster.jobs(selector="team=ml,x!=y") == [{"a": 1}]
        assert stub.paths == [f"{path}?limit=500&labelSelector=team%3Dml%2Cx%21%3Dy"]
