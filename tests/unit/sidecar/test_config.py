# SPDX-License-Identifier: Apache-2.0
"""What the sidecar says to whoever starts it by hand."""

import os
import sys
from pathlib import Path

import pytest

from elasticjob_sidecar.app import Ports
from elasticjob_sidecar.config import Config, ConfigError
from support.waiting import run

ENV = {
    "ELASTICJOB_JOB": "job",
    "ELASTICJOB_JOB_UID": "uid",
    "ELASTICJOB_INDEX": "3",
    "ELASTICJOB_BATCH": "9f3c01d2",
    "ELASTICJOB_NAMESPACE": "default",
    "ELASTICJOB_POD_NAME": "job-3-0",
    "ELASTICJOB_POD_UID": "pod",
    "ELASTICJOB_POD_IP": "10.0.0.7",
    "ELASTICJOB_STORE_READY_SECONDS": "30",
}


def test_it_is_read_from_the_environment() -> None:
    config = Config.from_env({**ENV, "PATH": "/bin"})
    assert (config.job, config.index, config.store_ready_seconds, config.join_timeout_seconds) == ("job", 3, 30, 600)
    assert config.address == "10.0.0.7:27601"


def test_in_its_nodes_network_a_pod_has_the_ports_that_it_is_given_and_leads_to_no_other_of_rank_0s() -> None:
    given = {"STORE_PORT": "30400", "TUNNEL_PORT": "30601", "HEALTH_PORT": "30602", "TRAINER_SOCKET": "/p/.sidecar"}
    config = Config.from_env(ENV | {f"ELASTICJOB_{name}": value for name, value in given.items()})
    ports = Ports.of(config)
    assert (ports.store, ports.tunnel, ports.health, ports.forwarded) == (30400, 30601, 30602, 0)
    assert (str(ports.trainer_socket), config.address) == ("/p/.sidecar", "10.0.0.7:30601")
    assert Ports.of(Config.from_env(ENV)) == Ports()


@pytest.mark.parametrize("field", ["join_timeout_seconds", "store_ready_seconds", "save_seconds"])
def test_the_jobs_times_may_be_as_long_as_its_fields_allow(field: str) -> None:
    assert getattr(Config.from_env(ENV | {f"ELASTICJOB_{field.upper()}": "86400"}), field) == 86400


def test_an_ipv6_address_is_bracketed() -> None:
    assert Config.from_env(ENV | {"ELASTICJOB_POD_IP": "fd00::7"}).address == "[fd00::7]:27601"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("ELASTICJOB_JOB", None, "ELASTICJOB_JOB is not set: the sidecar is meant to be started by the"),
        ("ELASTICJOB_INDEX", "x", "ELASTICJOB_INDEX is 'x', which is not valid"),
        ("ELASTICJOB_POD_IP", "", "ELASTICJOB_POD_IP is '', which is not valid"),
        ("ELASTICJOB_SAVE_SECONDS", "-1", "ELASTICJOB_SAVE_SECONDS is '-1', which is not valid"),
        ("ELASTICJOB_STORE_READY_SECONDS", "0", "ELASTICJOB_STORE_READY_SECONDS is '0', which is not valid"),
    ],
)
def test_an_error_names_the_variable(variable: str, value: str | None, sentence: str) -> None:
    env = {name: text for name, text in ENV.items() if name != variable}
    with pytest.raises(ConfigError) as error:
        Config.from_env(env if value is None else env | {variable: value})
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, "ELASTICJOB_JOB is not set"),
        (ENV, "no access to the Kubernetes API"),
        (ENV | {"ELASTICJOB_PLUGIN_DIR": "/dev/null"}, "the plug-in cannot be copied to ELASTICJOB_PLUGIN_DIR"),
    ],
)
def test_started_by_hand_it_ends_with_one_sentence(env: dict[str, str], words: str, tmp_path: Path) -> None:
    env = env | {"ELASTICJOB_STATE_DIR": str(tmp_path)}
    paths = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    path = os.pathsep.join(part for part in sys.path if part)
    command = [sys.executable, "-m", "elasticjob_sidecar"]
    ended = run(command, env={**paths, **env, "PYTHONPATH": path})
    assert ended.returncode == 1
    assert ended.stderr.startswith("elasticjob-sidecar: ")
    assert words in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
