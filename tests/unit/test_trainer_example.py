"""The digits example: its two manifests must not drift apart."""

from pathlib import Path

import yaml

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
# What the local cluster does in its own way (see the head of demo/elasticjob.yaml).
LOCAL_POD = {"volumes", "securityContext"}
LOCAL_CONTAINER = {"imagePullPolicy", "resources", "volumeMounts"}
LOCAL_ENV = {"EPOCH_SECONDS"}


def read_shared_part(path):
    job = yaml.safe_load(path.read_text())
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["env"] = [variable for variable in container["env"] if variable["name"] not in LOCAL_ENV]
    for mapping, local in ((pod, LOCAL_POD), (container, LOCAL_CONTAINER)):
        for key in local:
            mapping.pop(key, None)
    return job


def test_the_demo_is_the_example():
    assert read_shared_part(DIGITS / "demo" / "elasticjob.yaml") == read_shared_part(DIGITS / "elasticjob.yaml")


def test_the_trainer_is_a_plain_torchrun():
    job = read_shared_part(DIGITS / "elasticjob.yaml")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert (container["name"], container["command"]) == ("trainer", ["torchrun", "train.py"])
