# SPDX-License-Identifier: Apache-2.0
"""The plug-in's calls to the sidecar, over real HTTP."""

import contextlib
import socket
import threading
import time

import pytest

from elasticjob_torch import wire
from elasticjob_torch.sidecar import client as api
from elasticjob_torch.sidecar import errors
from elasticjob_torch.sidecar.address import Address
from elasticjob_torch.sidecar.client import SidecarClient
from elasticjob_torch.sidecar.errors import SidecarRefusal, SidecarUnavailable
from elasticjob_torch.wire import JoinCause, LeaveCause, Round, StoreAddress
from support.trainer_sidecar import handed, refusal
from support.waiting import in_time


@pytest.fixture
def client(sidecar):
    return SidecarClient(Address("127.0.0.1", sidecar.port), "t" * 32, patience=5)


def test_join(sidecar, client):
    sidecar.answers["POST /v1/rendezvous"] = [handed(3, rank=1, world_size=4, run_id="uid")]
    where = {"store": StoreAddress("127.0.0.1", 27400), "master_address": "10.0.0.3"}
    assert client.join(2, JoinCause.STARTED, 60) == Round(number=3, rank=1, world_size=4, run_id="uid", **where)
    join = {"trainer": "t" * 32, "after": 2, "cause": "Started", "live": False, "timeout": 60}
    assert sidecar.requests == [("POST /v1/rendezvous", join)]


def test_store(sidecar, client):
    sidecar.answers["GET /v1/store"] = [(200, {"host": "127.0.0.1", "port": 27400})]
    client.post_store(3, 40001)
    assert client.await_store(3, 20) == StoreAddress("127.0.0.1", 27400)
    assert sidecar.said("POST /v1/store") == [{"trainer": "t" * 32, "round": 3, "port": 40001}]
    assert sidecar.said("GET /v1/store") == [{"round": "3", "timeout": "20"}]


def test_ends(sidecar, client):
    client.leave(LeaveCause.TRAINER_LEFT, 5)
    client.finish(3, 5)
    client.close(5)
    assert [(path, {k: v for k, v in body.items() if k != "trainer"}) for path, body in sidecar.requests] == [
        ("POST /v1/leave", {"cause": "TrainerLeft", "timeout": 5}),
        ("POST /v1/finish", {"round": 3, "timeout": 5}),
        ("POST /v1/close", {"timeout": 5}),
    ]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (409, "RoundBroken", errors.RoundBroken),
        (409, "NoTrainer", errors.NoTrainer),
        (409, "Superseded", errors.Superseded),
        (409, "TrainerLives", errors.TrainerLives),
        (410, "Closed", errors.Closed),
        (410, "Leaving", errors.Leaving),
        (410, "StageFinished", errors.StageFinished),
        (409, "OtherScript", errors.OtherScript),
        (409, "NewProcesses", errors.NewProcesses),
        (504, "JoinTimeout", errors.JoinTimeout),
        (504, "StoreTimeout", errors.StoreTimeout),
        (400, "BadRequest", SidecarRefusal),
        (418, "Unheard", SidecarRefusal),
    ],
)
def test_refusals_have_their_class(sidecar, client, status, code, kind):
    sidecar.answers["POST /v1/rendezvous"] = [refusal(status, code, "a sentence", outcome="Failed")]
    with pytest.raises(kind, match="a sentence") as caught:
        client.join(0, JoinCause.STARTED, 1)
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.outcome) == (code, "Failed")


def test_a_restart_of_the_sidecar_is_bridged(sidecar, client):
    sidecar.stop()
    again = threading.Timer(0.3, sidecar.start)
    again.start()
    assert client.view().job == "digits"
    again.join()


def test_a_failing_sidecar_is_asked_again(sidecar, client):
    sidecar.answers["GET /v1/rendezvous"] = [(500, {}), refusal(503, "Starting")]
    assert client.view().job == "digits"


def test_a_body_that_came_too_late_is_sent_again(sidecar, client):
    """The agent, or its whole node, was frozen between the request's head and its body."""
    sidecar.answers["POST /v1/store"] = [refusal(408, "BodyLate"), (204, {})]
    client.post_store(1, 2)
    assert not sidecar.answers["POST /v1/store"]


def test_no_sidecar():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = SidecarClient(Address("127.0.0.1", port), "t", patience=0.2)
    with pytest.raises(SidecarUnavailable, match=rf"nothing answers at 127.0.0.1:{port}.*refused\), for [0-9.]+ s$"):
        client.view()


def test_a_stranger_on_the_port_is_not_asked_twice(sidecar, client):
    sidecar.answers["GET /v1/rendezvous"] = [(404, {"detail": "Not Found"})]
    with pytest.raises(SidecarUnavailable, match=r"answered 404.*Not Found"):
        client.view()


def test_an_answer_that_lacks_something(sidecar, client):
    sidecar.answers["POST /v1/rendezvous"] = [(200, {"round": 1})]
    with pytest.raises(SidecarUnavailable, match="rank"):
        client.join(0, JoinCause.STARTED, 1)


@pytest.fixture
def silent():
    """Takes connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_silence_has_a_deadline(silent, monkeypatch):
    monkeypatch.setattr(wire, "MARGIN_SECONDS", 0.05)
    client = SidecarClient(Address("127.0.0.1", silent.getsockname()[1]), "t", patience=5)
    with pytest.raises(SidecarUnavailable, match=r"did not answer POST /v1/leave within 0\.15 s"):
        client.leave(LeaveCause.TRAINER_LEFT, 0.1)
    with pytest.raises(SidecarUnavailable, match=r"did not answer POST /v1/rendezvous within 0\.15 s"):
        client.join(0, JoinCause.STARTED, 0.1)


def test_a_long_wait_is_told_and_can_be_given_up(silent, monkeypatch):
    monkeypatch.setattr(api, "_LOOK_SECONDS", 0.02)
    client = SidecarClient(Address("127.0.0.1", silent.getsockname()[1]), "t", patience=5)
    looks, began = [], time.monotonic()

    def look():
        looks.append(time.monotonic() - began)
        if len(looks) == 3:
            raise SidecarUnavailable("it is silent", passing=False)

    with pytest.raises(SidecarUnavailable, match="it is silent"):
        client.join(0, JoinCause.STARTED, 3600, look)
    assert all(at >= least for at, least in zip(looks, [0.02, 0.04, 0.06], strict=True)), looks


def test_repetitions_have_a_deadline_too(silent, monkeypatch):
    """A sidecar that crashes in every call, each time after it was there for a while."""
    monkeypatch.setattr(wire, "MARGIN_SECONDS", 0.1)
    monkeypatch.setattr(api, "_SERVED_SECONDS", 0.01)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = silent.accept()
                time.sleep(0.02)
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    client = SidecarClient(Address("127.0.0.1", silent.getsockname()[1]), "t", patience=5)
    with (
        in_time("an end of the repetitions", 4),  # before the client's patience is over
        pytest.raises(SidecarUnavailable, match=r"nothing answers|did not answer POST /v1/finish"),
    ):
        client.finish(1, 0.2)
    silent.shutdown(socket.SHUT_RDWR)
