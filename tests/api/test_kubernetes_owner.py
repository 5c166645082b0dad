# SPDX-License-Identifier: Apache-2.0
"""Whose the ConfigMaps of the kubernetes backend are, against a real API server with the rights of JobSet's example."""

import importlib
import pickle
import secrets
from datetime import UTC, datetime
from pathlib import Path

import pytest

from elasticjob_torch.kubernetes.clock import SharedClock
from elasticjob_torch.kubernetes.heartbeats import Pace
from elasticjob_torch.kubernetes.keep_alive import Heartbeats
from elasticjob_torch.kubernetes.owner import Owner
from support import ControlPlane
from support.dynamic_torch import Node, State
from support.team import JOBSET, Team, new_team
from support.waiting import wait_until

NODE = Node("10.0.0.1", 1, 0)


@pytest.fixture
def team(control_plane: ControlPlane, tmp_path: Path):
    yield from new_team(control_plane, tmp_path, JOBSET)


@pytest.fixture
def run_of(team: Team, plugin):
    """The backend and the store of a run that a JobSet of this uid owns."""

    def make(uid):
        return new_run(team, None if uid is None else Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "digits", uid))

    return make


def new_run(team, owner):
    backend_module = importlib.import_module("elasticjob_torch.kubernetes.backend")
    store_module = importlib.import_module("elasticjob_torch.kubernetes.store")
    clock = SharedClock()
    state = team.config_map("digits", clock=clock, owner=owner)
    backend = backend_module.KubernetesRendezvousBackend(state, f"run of {owner}", Pace(5, 3), clock)
    backend.patience = 10.0
    return backend, store_module.KubernetesStore(team.config_map("digits-store", owner=owner), backend.scope)


def begin(run):
    """As the agents of a run do in their first round."""
    backend, store = run
    _, token, has_set = backend.set_state(state())
    assert has_set
    store.set("torch.rendezvous.run.0/MASTER_ADDR", "10.0.0.1")
    store.keep_only(["torch.rendezvous.run.0/"])
    return token


def state(**changes):
    return pickle.dumps(State(last_heartbeats={NODE: datetime.now(UTC)}, **changes))


def owners(team: Team) -> list[list[str]]:
    """The uids of the owners of both ConfigMaps."""
    found = [team.administer("GET", name)["metadata"] for name in ("digits", "digits-store")]
    return [[owner["uid"] for owner in metadata.get("ownerReferences", ())] for metadata in found]


def uid():
    numbers = secrets.token_hex(16)
    return "-".join((numbers[:8], numbers[8:12], numbers[12:16], numbers[16:20], numbers[20:]))


def test_config_maps_that_a_run_makes_are_its_owners(run_of, team: Team):
    job = uid()
    begin(run_of(job))
    assert owners(team) == [[job], [job]]
    (reference,) = team.administer("GET", "digits")["metadata"]["ownerReferences"]
    assert reference == {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "digits", "uid": job}


def test_config_maps_made_beforehand_become_its_owners(run_of, team: Team):
    for name in ("digits", "digits-store"):
        team.plane.request("POST", f"{team.core}/configmaps", {"metadata": {"name": name}})
    job = uid()
    begin(run_of(job))
    assert owners(team) == [[job], [job]]


def test_a_run_that_takes_them_over_is_not_deleted_with_the_former_ones_owner(run_of, team: Team):
    former, job = uid(), uid()
    run = run_of(former)
    token = begin(run)
    _, _, closed = run[0].set_state(state(closed=True), token)
    assert closed
    begin(run_of(job))
    assert owners(team) == [[job], [job]]


def test_later_writes_leave_owners_as_they_are(run_of, team: Team):
    """As somebody has changed them: only the first state of a run says whose it is."""
    run, other = run_of(uid()), uid()
    token = begin(run)
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "other", "uid": other}
    team.administer("PATCH", "digits", {"metadata": {"ownerReferences": [reference]}})
    assert run[0].set_state(state(round=1), token)[2]
    Heartbeats(team.config_map("digits"), SharedClock(), "10.0.0.1/1/0").write()
    assert owners(team)[0] == [other]


def test_a_run_without_an_owner_leaves_them_nobodys(run_of, team: Team):
    begin(run_of(None))
    assert owners(team) == [[], []]


def test_config_maps_go_with_their_job(plugin, tmp_path: Path):
    """By Kubernetes' own garbage collector."""
    with ControlPlane(controllers=True) as plane:
        team = Team(plane, tmp_path, JOBSET)
        container = {"name": "trainer", "image": "train:1"}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        jobs = f"/apis/batch/v1/namespaces/{team.namespace}/jobs"
        body = {"metadata": {"name": "digits"}, "spec": {"suspend": True, "template": template}}
        job = plane.request("POST", jobs, body)["metadata"]["uid"]
        begin(new_run(team, Owner("batch/v1", "Job", "digits", job)))
        team.close()
        assert owners(team) == [[job], [job]]

        def left():
            names = {body["metadata"]["name"] for body in plane.request("GET", f"{team.core}/configmaps")["items"]}
            return names & {"digits", "digits-store"}

        plane.request("DELETE", f"{jobs}/digits", {"propagationPolicy": "Background"})
        wait_until("the ConfigMaps to go with the Job", lambda: not left(), seen=left, pause=0.5)
