# SPDX-License-Identifier: Apache-2.0
"""What torchrun's options mean to the plug-in."""

import pytest

from elasticjob.api import RendezvousSpec
from elasticjob_torch.agent.busy import BUSY_SECONDS
from elasticjob_torch.agent.settings import SettingsError, parse_settings
from elasticjob_torch.sidecar.address import Address


def test_defaults():
    settings = parse_settings("127.0.0.1:27600", "uid", {"timeout": 900})
    assert (settings.address, settings.run_id) == (Address("127.0.0.1", 27600), "uid")
    assert (settings.close_timeout, settings.sidecar_timeout) == (30, 120)
    assert settings.ignored == ()
    assert settings.limits == {}
    assert settings.stop_timeout is None
    assert settings.save_timeout == 0
    assert settings.rejoin_timeout == float("inf")
    assert settings.store_timeout == 300


OF_THE_JOB = {
    "ELASTICJOB_STOP_SECONDS": "stop_timeout",
    "ELASTICJOB_SAVE_SECONDS": "save_timeout",
    "ELASTICJOB_REJOIN_SECONDS": "rejoin_timeout",
    "ELASTICJOB_STORE_READY_SECONDS": "store_ready",
}


@pytest.mark.parametrize("seconds", [1, 10, 86400])
@pytest.mark.parametrize(("variable", "setting"), OF_THE_JOB.items())
def test_the_jobs_times(variable, setting, seconds):
    assert getattr(parse_settings("", "uid", {}, {variable: str(seconds)}), setting) == seconds


@pytest.mark.parametrize("spec", [RendezvousSpec(), RendezvousSpec(rejoin_seconds=30), RendezvousSpec(stop_seconds=55)])
def test_processes_that_are_busy_are_stopped_before_their_pod_is_replaced(spec):
    given = {
        "ELASTICJOB_STOP_SECONDS": spec.stop_seconds,
        "ELASTICJOB_SAVE_SECONDS": spec.save_seconds,
        "ELASTICJOB_REJOIN_SECONDS": spec.rejoin_seconds,
    }
    patience = parse_settings("", "uid", {}, {name: str(value) for name, value in given.items()}).patience
    patience.begin(0)
    late = next(second for second in range(1000) if patience.look(second, [False]))
    assert late + spec.stop_seconds < spec.rejoin_seconds
    assert spec != RendezvousSpec() or late > BUSY_SECONDS


def test_a_job_may_have_no_time_for_saves():
    assert parse_settings("", "uid", {}, {"ELASTICJOB_SAVE_SECONDS": "0"}).save_timeout == 0


NO_TIMES = [(variable, value) for variable in OF_THE_JOB for value in ("", "0", "soon")]


@pytest.mark.parametrize(("variable", "value"), [one for one in NO_TIMES if one != ("ELASTICJOB_SAVE_SECONDS", "0")])
def test_a_time_of_the_job_that_is_none_is_refused(variable, value):
    with pytest.raises(SettingsError, match=f"^{variable}={value} is not a positive number of seconds"):
        parse_settings("", "uid", {}, {variable: value})


@pytest.mark.parametrize("key", ["close_timeout", "sidecar_timeout"])
def test_a_time_may_be_as_long_as_any(key):
    assert getattr(parse_settings("", "uid", {key: "86400"}), key) == 86400


@pytest.mark.parametrize(("key", "limit"), [("last_call_timeout", "last_call"), ("keep_alive_interval", "worker_lost")])
def test_a_limit_in_place_of_the_jobs_may_be_as_long(key, limit):
    attempts = {"keep_alive_max_attempt": "1"} if limit == "worker_lost" else {}
    assert parse_settings("", "uid", {key: "86400", **attempts}).limits == {limit: 86400}


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("", Address("127.0.0.1", 27600)),
        ("localhost", Address("127.0.0.1", 27600)),
        ("127.0.0.1", Address("127.0.0.1", 27600)),
        ("localhost:1234", Address("127.0.0.1", 1234)),
        (" 127.0.0.2:1234 ", Address("127.0.0.2", 1234)),
        ("unix:/elasticjob/trainer/.sidecar", Address(path="/elasticjob/trainer/.sidecar")),
    ],
)
def test_endpoint(endpoint, expected):
    assert parse_settings(endpoint, "uid", {}).address == expected


def test_what_accelerate_makes_of_several_machines_is_refused_in_its_words():
    with pytest.raises(SettingsError, match="--num_machines"):
        parse_settings("None:29500", "uid", {})


@pytest.mark.parametrize(
    "endpoint", ["10.0.0.1:27600", "trainer-0", "127.0.0.1:0", "127.0.0.1:http", "[::1]:27600", "unix:.sidecar"]
)
def test_endpoint_elsewhere_is_refused(endpoint):
    with pytest.raises(SettingsError, match="--rdzv-endpoint"):
        parse_settings(endpoint, "uid", {})


@pytest.mark.parametrize("endpoint", ["localhost:29500", "127.0.0.1", "127.0.0.2:1234"])
def test_a_port_other_than_the_sidecars_is_refused_at_once(endpoint):
    """As a script of the image says it that was written for c10d: nobody answers there."""
    with pytest.raises(SettingsError, match=f"--rdzv-endpoint '{endpoint}' .*127.0.0.1:1234; leave the option out"):
        parse_settings(endpoint, "uid", {}, {"PET_RDZV_ENDPOINT": "127.0.0.1:1234"})
    assert parse_settings("localhost:1234", "uid", {}, {"PET_RDZV_ENDPOINT": "127.0.0.1:1234"}).address.port == 1234


def test_times_come_as_strings():
    settings = parse_settings("", "uid", {"close_timeout": "2.5", "sidecar_timeout": 7})
    assert (settings.close_timeout, settings.sidecar_timeout) == (2.5, 7)


@pytest.mark.parametrize("value", ["", "soon", "0", "-1", "inf", "nan", None])
def test_a_time_that_is_none_is_refused(value):
    with pytest.raises(SettingsError, match="close_timeout"):
        parse_settings("", "uid", {"close_timeout": value})


def test_unknown_key_is_named():
    with pytest.raises(SettingsError, match=r"unknown key 'join_timout'.*join_timeout"):
        parse_settings("", "uid", {"join_timout": "90"})


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        ({"last_call_timeout": "5"}, {"last_call": 5}),
        ({"last_call_timeout": 60}, {"last_call": 60}),
        ({"keep_alive_interval": "4"}, {"worker_lost": 12}),
        ({"keep_alive_max_attempt": "6"}, {"worker_lost": 30}),
        ({"keep_alive_interval": "5", "keep_alive_max_attempt": "2"}, {"worker_lost": 10}),
    ],
)
def test_limits_in_place_of_the_jobs(config, limits):
    assert parse_settings("", "uid", config).limits == limits


@pytest.mark.parametrize("key", ["last_call_timeout", "keep_alive_interval", "keep_alive_max_attempt"])
@pytest.mark.parametrize("value", ["", "soon", "0", "-1", "2.5", "inf", "86401", None])
def test_what_is_no_whole_number_is_refused(key, value):
    with pytest.raises(SettingsError, match=f"{key}=.*whole number"):
        parse_settings("", "uid", {key: value})


@pytest.mark.parametrize("config", [{"keep_alive_interval": "3"}, {"keep_alive_max_attempt": "86400"}])
def test_a_silence_that_the_heartbeats_cannot_keep_is_refused(config):
    with pytest.raises(SettingsError, match=r"keep_alive_interval \* keep_alive_max_attempt is .* at least 10"):
        parse_settings("", "uid", config)


def test_the_time_for_a_join_is_the_jobs_alone():
    (said,) = parse_settings("", "uid", {"join_timeout": "15"}).ignored
    assert said.startswith("--rdzv-conf join_timeout has no effect with this backend: spec.rendezvous.")


@pytest.mark.parametrize(
    "key", ["etcd_prefix", "protocol", "cacert", "cert", "key", "ca_cert", "ssl_cert", "ssl_cert_key", "read_timeout"]
)
def test_keys_of_torchs_etcd_backends_are_accepted(key):
    assert parse_settings("", "uid", {key: "https"}).ignored == (f"--rdzv-conf {key} has no effect with this backend",)


def test_keys_of_torchs_own_backends_are_accepted_and_explained():
    config = {"heartbeat": "5", "heartbeat_timeout": 5, "is_host": "1", "cas_backoff_max_seconds": "2", "timeout": 900}
    settings = parse_settings("", "uid", config)
    told = (
        "has no effect with this backend: the sidecar writes the heartbeats, and tries each again until it is written"
    )
    assert settings.ignored == (
        f"--rdzv-conf heartbeat {told}",
        f"--rdzv-conf heartbeat_timeout {told}",
        "--rdzv-conf is_host has no effect with this backend",
        "--rdzv-conf cas_backoff_max_seconds has no effect with this backend: the operator alone writes the state of "
        "the rendezvous",
    )
