# SPDX-License-Identifier: Apache-2.0
"""The program around the commands: completion, help, and that its distribution fits the others."""

import io
import re
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from elasticjob_cli import completion
from elasticjob_cli.app import cli
from elasticjob_cli.errors import Exit
from elasticjob_cli.output import console
from elasticjob_cli.output.tables import Paragraph, Part, Span, table

ROOT = Path(__file__).parents[3]
OWN = tomllib.loads((ROOT / "cli" / "pyproject.toml").read_text())["project"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCUMENT = (ROOT / "docs" / "cli.md").read_text()
CONTEXT = click.Context(cli)
COMMANDS = {name: found for name in cli.list_commands(CONTEXT) if (found := cli.get_command(CONTEXT, name))}


def test_its_version_is_the_projects_and_it_needs_the_types_of_that() -> None:
    assert OWN["version"] == PROJECT["version"]
    assert f"elasticjob=={PROJECT['version']}" in OWN["dependencies"]


def test_the_development_environment_has_what_it_needs() -> None:
    extras = PROJECT["optional-dependencies"]
    there = {*extras["dev"], *extras["operator"]}
    assert {one for one in OWN["dependencies"] if not one.startswith("elasticjob")} <= there


def test_each_command_and_exit_code_is_documented() -> None:
    for name in COMMANDS:
        assert f"`kubectl elasticjob {name}" in DOCUMENT, name
    for code in Exit:
        assert f"| {code.value} |" in DOCUMENT, code


def test_each_option_is_documented() -> None:
    for name, command in COMMANDS.items():
        for parameter in command.params:
            for option in parameter.opts:
                assert not option.startswith("--") or f"`{option}" in DOCUMENT, f"{name} {option}"


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_shell_gets_its_script(shell: str) -> None:
    assert "kubectl-elasticjob" in CliRunner().invoke(cli, ["completion", shell]).stdout


def test_kubectl_gets_its_completions_and_that_no_files_are_meant() -> None:
    told = completion.answer(cli, ["s"])
    assert [one.partition("\t")[0] for one in told] == ["status", "scale", "suspend", ":4"]
    assert completion.answer(cli, ["status", "--w"])[0].startswith("--watch\t")
    assert completion.answer(cli, ["completion", ""]) == ["bash", "zsh", "fish", ":4"]


def test_completion_without_a_cluster_is_silent(tmp_path: Path) -> None:
    away = str(tmp_path / "nothing")
    assert completion.answer(cli, ["why", "--kubeconfig", away, ""]) == [":4"]
    assert completion.answer(cli, ["why", "--kubeconfig", away, "--context", ""]) == [":4"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["status", "a", "-A"], "-A goes without JOB"),
        (["status", "a", "-l", "b=c"], "--selector goes without JOB"),
        (["logs", "a", "--since", "soon"], "'soon' is no length of time, such as 30s, 5m or 1h"),
        (["why", "a", "--request-timeout", "-1s"], "'-1s' is no length of time"),
        (["logs", "a", "-f", "-p"], "--previous and --follow exclude each other"),
        (["why", "a", "--operator", "nobody"], "'nobody' is not NAMESPACE/LEASE"),
        (["why", "pod/a"], "'pod/a' is no ElasticJob: name the job, alone or as elasticjob/NAME"),
        (["status", "ej/"], "'ej/' is no ElasticJob"),
        (["scale", "a", "0"], "0 is not in the range x>=1"),
        (["scale", "a", "2", "--timeout", "0"], "0.0 is not in the range x>0"),
    ],
)
def test_a_wrong_command_line_is_told(arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == Exit.WRONG_COMMAND_LINE
    assert sentence in done.stderr


@pytest.mark.parametrize("name", ["a", "ej/a", "elasticjob/a", "ElasticJobs/a", "elasticjobs.elasticjob.io/a"])
@pytest.mark.parametrize("command", ["why", "status"])
def test_a_job_is_named_as_kubectl_takes_it(command: str, name: str) -> None:
    with COMMANDS[command].make_context(command, [name]) as context:
        assert context.params["job"] == "a"


def test_a_kubeconfig_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["why", "a", "--kubeconfig", str(tmp_path / "nothing")])
    assert done.exit_code == Exit.REFUSED
    assert done.stderr.startswith("error: the kubeconfig cannot be used: ")


BAD = "\x1b]0;mine\x07\x1b[2Jred\u202e"


@pytest.mark.parametrize(
    "part",
    [Paragraph.of(f"{BAD}\nnext"), table(["WHAT"], [[BAD]]), Paragraph((Span("a "), Span(BAD, "bold")))],
    ids=["text", "table", "styled"],
)
def test_what_old_statuses_hold_gets_to_no_terminal(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the output is one, by which colours are shown."""
    for terminal in ("", "1"):
        monkeypatch.setenv("FORCE_COLOR", terminal)
        out = io.StringIO()
        monkeypatch.setattr("sys.stdout", out)
        console.show([part])
        shown = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
        assert "red" in shown
        assert all(line.isprintable() for line in shown.splitlines())


def test_a_sentence_is_printable_too(capsys: pytest.CaptureFixture[str]) -> None:
    console.say(f"error: {BAD}", err=True)
    assert capsys.readouterr().err == "error: red \n"


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [
        (True, "[0 a] \x1b[31m100 %\x1b[0m a    b red \x1b[0m\n"),
        (False, "[0 a] 1 %\r100 % a\tb \x1b]0;mine\x07red\u202e\n"),
    ],
)
def test_a_line_of_a_log_keeps_its_colours_and_nothing_else_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, terminal: bool, shown: str
) -> None:
    monkeypatch.setattr(console, "is_terminal", lambda: terminal)
    console.say_line("[0 a] ", f"1 %\r\x1b[31m100 %\x1b[0m a\tb {BAD}")
    assert capsys.readouterr().out == shown
