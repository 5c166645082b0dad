# SPDX-License-Identifier: Apache-2.0
"""The command line."""

import json

import pytest

from elasticjob_operator.objects.pods import SIDECAR_RESOURCES, SIDECAR_SECURITY
from elasticjob_operator.options import parse

WITH_IMAGE = ["--sidecar-image", "x", "--lease-namespace", "ops"]


def test_a_missing_image_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([], {})
    assert "--sidecar-image is missing" in capsys.readouterr().err


def test_outside_a_pod_the_lease_needs_a_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--sidecar-image", "x"], {})
    assert "--lease-namespace is missing" in capsys.readouterr().err


def test_a_flag_wins_over_its_variable() -> None:
    found = {"ELASTICJOB_SIDECAR_IMAGE": "a", "ELASTICJOB_LEASE_NAMESPACE": "ops", "POD_NAME": "one"}
    options = parse(["--sidecar-image", "b", "--namespaces", "ml, dev"], found)
    assert (options.sidecar_image, options.lease_namespace, options.identity) == ("b", "ops", "one")
    assert options.namespaces == ("ml", "dev")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ELASTICJOB_METRICS_SECURE", "True"),
        ("ELASTICJOB_WORKER_NETWORK_POLICY", "yes"),
        ("ELASTICJOB_LOG_FORMAT", "JSON"),
        ("ELASTICJOB_LOG_LEVEL", "verbose"),
    ],
)
def test_a_variable_is_checked_as_a_flag_is(variable: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(WITH_IMAGE, {variable: value})
    assert f"{variable} is {value!r}: choose from " in capsys.readouterr().err


@pytest.mark.parametrize("given", ["4", "61", "7.5", "-5", "ten", ""])
def test_a_wrong_duration_of_the_lease_is_named(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*WITH_IMAGE, f"--lease-seconds={given}"], {})
    assert f"--lease-seconds: {given!r} is no whole number from 5 to 60" in capsys.readouterr().err
    assert parse([*WITH_IMAGE, "--lease-seconds=5"], {}).lease_seconds == 5


def test_the_sidecars_resources_have_a_default() -> None:
    assert parse(WITH_IMAGE, {}).sidecar_resources == SIDECAR_RESOURCES
    given = '{"requests": {"cpu": 1, "memory": "1.5Gi"}, "limits": {}}'
    assert parse([*WITH_IMAGE, "--sidecar-resources", given], {}).sidecar_resources == json.loads(given)


def test_the_sidecars_security_context_has_a_default_and_null_in_it_is_left_out() -> None:
    assert parse(WITH_IMAGE, {}).sidecar_security_context == SIDECAR_SECURITY
    given = '{"runAsUser": null, "runAsNonRoot": true}'
    found = parse([*WITH_IMAGE, "--sidecar-security-context", given], {}).sidecar_security_context
    assert found == {"runAsNonRoot": True}


@pytest.mark.parametrize(("given", "sentence"), [("{", "is no JSON"), ("null", "must be an object")])
def test_a_wrong_security_context_is_named(given: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*WITH_IMAGE, "--sidecar-security-context", given], {})
    assert f"--sidecar-security-context: {given!r} {sentence}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("{", "is no JSON: Expecting property name"),
        ("[]", 'must be an object of "requests" and "limits"'),
        ('{"limit": {}}', 'must be an object of "requests" and "limits"'),
        ('{"limits": 1}', "limits must be quantities such as"),
        ('{"limits": {"cpu": "much"}}', "limits must be quantities such as"),
        ('{"limits": {"cpu": true}}', "and is {'cpu': True}"),
    ],
)
def test_wrong_resources_are_named(given: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*WITH_IMAGE, "--sidecar-resources", given], {})
    said = capsys.readouterr().err
    assert "--sidecar-resources: " in said
    assert sentence in said


def test_logs_and_metrics_may_be_chosen() -> None:
    options = parse(WITH_IMAGE, {})
    assert (options.log_format, options.job_metrics) == ("text", True)
    options = parse(WITH_IMAGE, {"ELASTICJOB_LOG_FORMAT": "json", "ELASTICJOB_JOB_METRICS": "false"})
    assert (options.log_format, options.job_metrics) == ("json", False)


def test_metrics_are_secured_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(WITH_IMAGE, {}).metrics_port == 0
    assert parse([*WITH_IMAGE, "--metrics-secure=true"], {}).metrics_port == 8443
    options = parse([*WITH_IMAGE, "--metrics-secure=true", "--metrics-port=9443", "--metrics-certificate=/tls"], {})
    assert (options.metrics_port, options.metrics_certificate) == (9443, "/tls")
    with pytest.raises(SystemExit):
        parse([*WITH_IMAGE, "--metrics-secure=true", "--metrics-port=8080"], {})
    assert "--metrics-port 8080 is the --health-port, whose pages are open to all" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse([*WITH_IMAGE, "--metrics-port=none"], {})
    assert "--metrics-port: 'none' is no whole number from 1 to 65535" in capsys.readouterr().err
