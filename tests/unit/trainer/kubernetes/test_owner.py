# SPDX-License-Identifier: Apache-2.0
"""The object to which a run's ConfigMaps belong, as --rdzv-conf names it."""

import importlib
import types

import pytest

from elasticjob_torch.agent.settings import SettingsError
from elasticjob_torch.kubernetes.settings import parse_settings
from support.dynamic_torch import stand_in

torch = pytest.fixture(stand_in)

UID = "0b9f6c0e-6f0f-4a51-9d8e-2a5c6f1f7a11"


@pytest.mark.parametrize(
    ("version", "kind"),
    [("v1", "Pod"), ("batch/v1", "Job"), ("apps/v1", "StatefulSet"), ("jobset.x-k8s.io/v1alpha2", "JobSet")],
)
def test_an_object_of_any_group_is_an_owner(version: str, kind: str) -> None:
    owner = parse_settings("train", {"owner": f"{version}/{kind}/train.a-1/{UID}"}).owner
    assert owner is not None
    assert owner.reference == {"apiVersion": version, "kind": kind, "name": "train.a-1", "uid": UID}


def test_without_one_there_is_none() -> None:
    assert parse_settings("train", {}).owner is None


@pytest.mark.parametrize(
    ("owner", "remedy"),
    [
        ("", "is not <apiVersion>/<kind>/<name>/<uid>"),
        (f"Job/train/{UID}", "is not <apiVersion>/<kind>/<name>/<uid>"),
        (f"batch/v1/Job/$(JOB)/{UID}", "list that variable in the container's env before this one"),
        ("batch/v1/Job/train/", "has '' as its uid"),
        ("batch/v1/Job/train/train", "has 'train' as its uid"),
        (f"batch/v1/jobs/train/{UID}", "has 'jobs' as its kind"),
        (f"batch/Job/train/{UID}", "has 'batch' as its apiVersion"),
        (f"batch/v1/Job/-/{UID}", "has '-' as its name"),
    ],
)
def test_what_names_no_object_is_refused_by_the_option_at_fault(owner: str, remedy: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_settings("train", {"owner": owner})
    assert str(refusal.value).startswith(f"--rdzv-conf owner={owner} ")
    assert remedy in str(refusal.value)


@pytest.mark.parametrize(
    ("endpoint", "owned", "expected"),
    [
        ("train", True, "team"),
        ("team/train", True, "team"),
        ("other/train", False, "other"),
        ("other/train", True, None),
    ],
)
def test_config_maps_are_where_their_owner_is(
    torch: types.ModuleType, endpoint: str, owned: bool, expected: str | None
) -> None:
    module = importlib.import_module("elasticjob_torch.kubernetes.handler")
    settings = parse_settings(endpoint, {"owner": f"batch/v1/Job/train/{UID}"} if owned else {})
    access = types.SimpleNamespace(namespace=lambda: "team")
    if expected is None:
        with pytest.raises(SettingsError, match="leave out owner= of --rdzv-conf, or the namespace"):
            module._namespace(settings, access)
    else:
        assert module._namespace(settings, access) == expected
