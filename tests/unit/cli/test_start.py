# SPDX-License-Identifier: Apache-2.0
"""The program as a process: what it imports, as that is most of its time, and how it ends when nobody reads."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticjob_cli.app import cli
from support.cli_jobs import formed
from support.stub_api import DATE, Stub, stub_api
from support.waiting import exit_code, wait_until

ROOT = "/apis/elasticjob.io/v1alpha1/namespaces/default"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/elasticjob-system/leases/elasticjob-operator"
HEAVY = {"aiohttp", "cryptography", "google", "kopf", "kubernetes", "oauthlib", "prometheus_client", "requests", "rich"}
WITH_A_CLUSTER = {"elasticjob.api", "pydantic", "urllib3", "yaml"}  # what asking one needs
LINES = "".join(f"2026-11-22T11:59:00.{number:09d}Z {'a step' * 20}\n" for number in range(20_000))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    seen = formed([0, 1])
    for one in seen.scene.pods:
        one["metadata"]["namespace"] = "default"

    def listed(items: object) -> object:
        return {"items": items, "metadata": {}}

    answers = {
        f"{ROOT}/elasticjobs": listed([seen.scene.job]),
        f"{ROOT}/elasticjobs/digits": seen.scene.job,
        f"{ROOT}/elasticworkers": listed([]),
        "/api/v1/namespaces/default/pods": listed(list(seen.scene.pods)),
        "/api/v1/namespaces/default/events": listed([]),
        "/api/v1/namespaces/default/persistentvolumeclaims": listed([]),
        **{f"/api/v1/namespaces/default/pods/digits-{index}-0/log": LINES.encode() for index in (0, 1)},
        LEASE: {
            "metadata": {"resourceVersion": "1"},
            "spec": {"holderIdentity": "a", "renewTime": "2026-11-22T12:00:00Z"},
        },
    }
    assert DATE == "Sun, 22 Nov 2026 12:00:00 GMT"
    with stub_api(answers) as stub:
        config = {
            "clusters": [{"name": "a", "cluster": {"server": stub.url}}],
            "contexts": [{"name": "a", "context": {"cluster": "a"}}],
            "current-context": "a",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        yield stub


def imported(*words: str) -> set[str]:
    """The modules that a call of the program has imported."""
    return set(at_exit("*sys.modules", *words).split())


def at_exit(expression: str, *words: str) -> str:
    """What the expression is at the end of a call of the program, printed."""
    shows = f"import atexit, sys; atexit.register(lambda: print({expression}, file=sys.stderr)); "
    code = f"{shows}from elasticjob_cli.app import main; sys.argv[1:] = {list(words)!r}; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout
    return done.stderr


def test_the_metadata_of_other_packages_is_not_read_in_search_of_plugins(server: Stub) -> None:
    plugins = "sys.modules['pydantic.plugin._loader']._plugins"
    assert at_exit(plugins, "status", "digits").strip() == "None", "none was looked for"


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "-o", "yaml"),
        ("status", "digits"),
        ("why", "digits"),
        ("history", "digits"),
        ("logs", "digits"),
        ("scale", "digits", "2"),
        ("run", "a", "--image=b", "--dry-run", "--", "train.py"),
    ],
    ids=" ".join,
)
def test_a_command_imports_nothing_heavy(server: Stub, words: tuple[str, ...]) -> None:
    modules = imported(*words)
    assert not modules & HEAVY
    assert "elasticjob.api" in modules


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("completion", "bash")], ids=" ".join)
def test_what_asks_no_cluster_imports_less(server: Stub, words: tuple[str, ...]) -> None:
    if words == ("--help",):  # it shows what each command does
        assert not imported(*words) & HEAVY
    else:
        assert not imported(*words) & (HEAVY | WITH_A_CLUSTER)


def test_a_status_is_as_many_requests_as_kinds_of_objects(server: Stub) -> None:
    imported("status", "digits")
    assert len(server.asked) == 5


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="a signal of Unix")
def test_a_reader_that_ends_first_ends_the_program_silently(server: Stub) -> None:
    words = [sys.executable, "-m", "elasticjob_cli", "logs", "digits"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline().startswith(b"[0 digits-0-0] a step")
        process.stdout.close()
        assert (exit_code(process), process.stderr.read()) == (-signal.SIGPIPE, b"")


def test_an_interrupt_ends_the_program_while_the_api_server_is_silent(server: Stub) -> None:
    silence = threading.Event()
    server.answers["/api/v1/namespaces/default/pods"] = silence
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # also where the tests ignore it
    code = f"{heeds}; from elasticjob_cli.app import main; main()"
    words = [sys.executable, "-c", code, "status", "digits"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            wait_until("all that is asked for", lambda: len(server.asked) == 5)
            process.send_signal(signal.SIGINT)
            assert (exit_code(process), process.communicate()) == (130, (b"", b""))
        finally:
            silence.set()


def test_each_command_has_a_line_of_help() -> None:
    context = cli.make_context("kubectl elasticjob", ["status"])
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str()
    assert cli.get_command(context, "nothing") is None
