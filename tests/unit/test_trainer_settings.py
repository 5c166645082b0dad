"""What torchrun's options mean to the plug-in."""

import pytest

from elasticjob_torch.settings import SettingsError, parse_settings


def test_defaults():
    settings = parse_settings("127.0.0.1:29401", "uid", {"timeout": 900})
    assert (settings.host, settings.port, settings.run_id) == ("127.0.0.1", 29401, "uid")
    assert settings.join_timeout is None
    assert (settings.close_timeout, settings.sidecar_timeout) == (30, 30)
    assert settings.ignored == ()


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("", ("127.0.0.1", 29401)),
        ("localhost", ("127.0.0.1", 29401)),
        ("127.0.0.1", ("127.0.0.1", 29401)),
        ("localhost:1234", ("127.0.0.1", 1234)),
        (" 127.0.0.2:1234 ", ("127.0.0.2", 1234)),
    ],
)
def test_endpoint(endpoint, expected):
    settings = parse_settings(endpoint, "uid", {})
    assert (settings.host, settings.port) == expected


@pytest.mark.parametrize("endpoint", ["10.0.0.1:29401", "trainer-0", "127.0.0.1:0", "127.0.0.1:http", "[::1]:29401"])
def test_endpoint_elsewhere_is_refused(endpoint):
    with pytest.raises(SettingsError, match="--rdzv-endpoint"):
        parse_settings(endpoint, "uid", {})


def test_times_come_as_strings():
    settings = parse_settings("", "uid", {"join_timeout": "90", "close_timeout": "2.5", "sidecar_timeout": 7})
    assert (settings.join_timeout, settings.close_timeout, settings.sidecar_timeout) == (90, 2.5, 7)


@pytest.mark.parametrize("value", ["", "soon", "0", "-1", "inf", "nan", None])
def test_a_time_that_is_none_is_refused(value):
    with pytest.raises(SettingsError, match="join_timeout"):
        parse_settings("", "uid", {"join_timeout": value})


def test_unknown_key_is_named():
    with pytest.raises(SettingsError, match=r"unknown key 'join_timout'.*join_timeout"):
        parse_settings("", "uid", {"join_timout": "90"})


def test_keys_of_torchs_own_backends_are_accepted_and_explained():
    settings = parse_settings("", "uid", {"last_call_timeout": "5", "is_host": "1"})
    assert settings.ignored == (
        "--rdzv-conf last_call_timeout has no effect with this backend; "
        "set spec.rendezvous.lastCallSeconds of the ElasticJob instead",
        "--rdzv-conf is_host has no effect with this backend",
    )
