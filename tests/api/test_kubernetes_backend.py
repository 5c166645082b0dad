# SPDX-License-Identifier: Apache-2.0
"""`KubernetesRendezvousBackend` against a real API server, with the rights of the example's Role."""

import importlib
import json
import pickle
import threading
from datetime import UTC, datetime, timedelta

import pytest

from elasticjob_torch.kubernetes.api import Forbidden, NotFound, Unavailable
from elasticjob_torch.kubernetes.clock import SharedClock
from elasticjob_torch.kubernetes.heartbeats import Pace
from elasticjob_torch.kubernetes.keep_alive import Heartbeats, KeepAlive
from support import ControlPlane
from support.dynamic_torch import Node, State
from support.team import Team
from support.waiting import in_time, wait_until

# made by: openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /dev/null -days 36500
OTHER_AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBjjCCATWgAwIBAgIUDEUE2zUZOH4wDJB7iZf0KcN4IpYwCgYIKoZIzj0EAwIw
HDEaMBgGA1UEAwwRYW5vdGhlciBhdXRob3JpdHkwIBcNMjYxMTIxMTUyMzE3WhgP
MjEyNjEwMjgxNTIzMTdaMBwxGjAYBgNVBAMMEWFub3RoZXIgYXV0aG9yaXR5MFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEwAphG6KbupsF0j9LnV+08MMGKjiuE2DJ
i1oYhymblej0tGFW8G0SNd0M+8mIqpoejBAUFmnuZzLDcqdAOpJyHqNTMFEwHQYD
VR0OBBYEFObqUHa1a62JObfCBZiiaBjo589mMB8GA1UdIwQYMBaAFObqUHa1a62J
ObfCBZiiaBjo589mMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIg
QVHD33ReJpV8pTO7rO2+O0MOPonbllvrYS5jxX0vVxUCIFHkK7Fl3zYTXB+s2ZTs
e3rpJohKmXmdJ8vxEKfqydmV
-----END CERTIFICATE-----
"""

A, B = Node("10.0.0.1", 1, 0), Node("10.0.0.2", 1, 0)


@pytest.fixture
def make(team, plugin):
    module = importlib.import_module("elasticjob_torch.kubernetes.backend")

    def make_backend(run_id="run", name="digits", **options):
        clock = SharedClock()
        config_map = team.config_map(name, clock=clock)
        backend = module.KubernetesRendezvousBackend(config_map, run_id, Pace(5, 3), clock, **options)
        backend.patience = 10.0
        return backend

    return make_backend


def state(**changes):
    return pickle.dumps(State(**changes))


def round_of(answer):
    return pickle.loads(answer[0]).round


def test_first_writer_begins_and_the_second_gets_its_state(make):
    first, second = make(), make()
    assert first.get_state() is None
    written, token, has_set = first.set_state(state(round=1))
    assert (round_of((written,)), has_set) == (1, True)
    answer = second.set_state(state(round=2))
    assert (round_of(answer), answer[1], answer[2]) == (1, token, False)
    assert second.get_state() == (answer[0], token)


def test_state_is_replaced_only_by_its_token(make):
    first, second = make(), make()
    _, old, _ = first.set_state(state(round=1))
    _, new, has_set = first.set_state(state(round=2), old)
    assert has_set
    assert new != old
    second.get_state()
    answer = second.set_state(state(round=7), old)
    assert (round_of(answer), answer[1], answer[2]) == (2, new, False)
    assert second.set_state(state(round=7), answer[1])[2]


@pytest.mark.parametrize("token", ["", "0", "invalid", "1" * 64, b"bytes", 7, object()])
def test_token_that_is_none_of_the_backends_writes_nothing(make, token):
    backend = make()
    assert backend.set_state(state(round=7), token) is None
    first, current, _ = backend.set_state(state(round=1))
    with in_time("answers without a wait for a state", backend.patience / 2):
        for each in (backend, make()):
            assert each.set_state(state(round=7), token) == (first, current, False)


@pytest.mark.parametrize(("options", "longest"), [({}, [0.04, 0.08, 0.16]), ({"longest_pause": 0.5}, [0.5, 0.5, 0.5])])
def test_pause_after_a_write_that_was_forestalled(make, monkeypatch, options, longest):
    backend, pauses = make(**options), []
    _, token, _ = backend.set_state(state())
    make().set_state(state(round=1), token)
    module = importlib.import_module(type(backend).__module__)
    monkeypatch.setattr(module, "uniform", lambda least, most: pauses.append(most) or 0)
    for _ in range(3):
        assert not backend.set_state(state(round=2), token)[2]
    assert pauses == longest


def test_heartbeats_leave_the_token_as_it_is(make, team: Team):
    backend = make()
    _, token, _ = backend.set_state(state(round=1, last_heartbeats={A: datetime.now(UTC)}))
    heartbeats = Heartbeats(team.config_map("digits"), SharedClock(), "10.0.0.1/1/0")
    for _ in range(3):
        heartbeats.write()
        assert make().get_state()[1] == token
    assert round_of(backend.set_state(state(round=2), token)) == 2
    assert make().get_state()[1] != token


def test_state_is_written_between_the_heartbeats_of_many(make, team: Team):
    backend = make()
    _, token, _ = backend.set_state(state())
    others = [KeepAlive(team.config_map("digits"), SharedClock(), f"10.0.0.{node}/1/0", 0.02) for node in range(5)]
    for other in others:
        other.start()
    for number in range(20):
        _, token, has_set = backend.set_state(state(round=number), token)
        assert has_set
    for other in others:
        other.stop()


def test_deletion_by_hand_of_what_is_deleted_does_no_harm(make, team: Team):
    backend = make()
    _, token, _ = backend.set_state(state())
    Heartbeats(team.config_map("digits"), SharedClock(), "10.0.0.1/1/0").write()
    backend.get_state()
    team.administer("PATCH", "digits", {"data": {"heartbeat.10.0.0.1_2F1_2F0": None}})
    assert backend.set_state(state(round=1), token)[2]


def test_heartbeats_of_those_that_left_are_deleted(make, team: Team):
    backend = make()
    _, token, _ = backend.set_state(state(last_heartbeats=dict.fromkeys((A, B), datetime.now(UTC))))
    for node in ("10.0.0.1/1/0", "10.0.0.2/1/0"):
        Heartbeats(team.config_map("digits"), SharedClock(), node).write()
    assert backend.get_state()[1] == token
    backend.set_state(state(last_heartbeats={B: datetime.now(UTC)}), token)
    assert set(team.administer("GET", "digits")["data"]) == {"state", "heartbeat.10.0.0.2_2F1_2F0"}


def heartbeats_in(team: Team) -> dict[str, str]:
    return json.loads(team.administer("GET", "digits")["data"]["state"])["last_heartbeats"]


def test_what_torch_is_told_of_a_silent_node_is_not_written_back(make, team: Team):
    silent = datetime.now(UTC) - timedelta(seconds=60)
    backend = make()
    backend.set_state(state(last_heartbeats={A: silent}, participants={A: 0}))
    bits, token = backend.get_state()
    told = pickle.loads(bits)
    assert datetime.now(UTC) - told.last_heartbeats[A] < timedelta(seconds=15)
    assert backend.seen.participants == 1
    told.last_heartbeats[B] = datetime.now(UTC)
    backend.set_state(pickle.dumps(told), token)
    assert datetime.fromisoformat(heartbeats_in(team)["10.0.0.1/1/0"]) == silent


@pytest.mark.parametrize(("slow_seconds", "left"), [(30, 1), (0, 2)], ids=["in time", "slow answers"])
def test_node_that_is_silent_while_another_goes_on_is_lost(make, team: Team, monkeypatch, slow_seconds, left):
    """Where the backend's own answers are slow, four heartbeats of another are not enough."""
    now = datetime.now(UTC)
    backend = make()
    monkeypatch.setattr(importlib.import_module(type(backend).__module__), "SLOW_SECONDS", slow_seconds)
    told = {A: now - timedelta(seconds=60), B: now - timedelta(seconds=60)}
    backend.set_state(state(last_heartbeats=told, participants={A: 0, B: 1}))
    times = [(now - timedelta(seconds=ago)).isoformat() for ago in (15, 10, 5, 0)]
    team.administer("PATCH", "digits", {"data": {"heartbeat.10.0.0.2_2F1_2F0": " ".join(times)}})
    bits, _ = backend.get_state()
    kept = pickle.loads(bits).last_heartbeats
    assert kept[B] == datetime.fromisoformat(times[-1])
    assert (kept[A] == told[A]) == (left == 1)
    assert backend.seen.participants == left


def test_no_write_is_lost_among_many_writers(make):
    make().set_state(state())

    def count_up(backend):
        for _ in range(10):
            bits, token = backend.get_state()
            done = False
            while not done:
                bits, token, done = backend.set_state(state(round=pickle.loads(bits).round + 1), token)

    writers = [threading.Thread(target=count_up, args=(make(),)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert round_of(make().get_state()) == 40


def test_kubectl_shows_the_state(make, team: Team):
    make().set_state(state(round=4, complete=True, participants={A: 0, B: 1}))
    shown = json.loads(team.administer("GET", "digits")["data"]["state"])
    assert shown["runId"] == "run"
    assert shown["round"] == 4
    assert shown["participants"] == {"10.0.0.1/1/0": 0, "10.0.0.2/1/0": 1}


def test_deleted_state_is_begun_anew_with_another_scope(make, team: Team):
    backend = make()
    _, token, _ = backend.set_state(state(round=1))
    scope = backend.scope()
    team.administer("PATCH", "digits", {"data": None})
    assert backend.set_state(state(round=2), token) is None
    assert backend.set_state(state(round=0))[2]
    assert backend.scope() != scope


def test_run_in_use_is_not_taken_over(make, plugin):
    make("first").set_state(state(last_heartbeats={A: datetime.now(UTC)}))
    for use in (lambda: make("second").get_state(), lambda: make("second").set_state(state())):
        with pytest.raises(plugin.RendezvousStateError, match="in use by the run 'first', where this is 'second'"):
            use()


@pytest.mark.parametrize(
    "end", [{"closed": True, "last_heartbeats": {A: datetime(2100, 1, 1, tzinfo=UTC)}}, {"last_heartbeats": {}}]
)
def test_run_that_is_over_makes_place(make, end):
    first, second = make("first"), make("second")
    first.set_state(state(**end))
    assert second.get_state() is None
    assert second.set_state(state(round=5))[2]
    assert second.scope() != first.scope()


def test_run_whose_nodes_are_lost_makes_place_after_their_expiry(make, plugin):
    silent = timedelta(seconds=8)  # of 15: the first look may be some seconds late
    first, second = make("first"), make("second")
    first.set_state(state(last_heartbeats={A: datetime.now(UTC) - silent}))
    with pytest.raises(plugin.RendezvousStateError, match="in use"):
        second.get_state()
    wait_until("the first run's nodes to be lost", lambda: is_over(second, plugin), pause=0.2)


def is_over(backend, plugin):
    try:
        assert backend.get_state() is None
    except plugin.RendezvousStateError:
        return False
    return True


def test_node_of_a_run_that_was_replaced_is_told(make, plugin):
    first, second = make("first"), make("second")
    _, token, _ = first.set_state(state())
    second.set_state(state(last_heartbeats={B: datetime.now(UTC)}))
    with pytest.raises(plugin.RendezvousStateError, match="in use by the run 'second'"):
        first.set_state(state(), token)


@pytest.mark.parametrize(
    "text",
    ["", "gASVCgAAAAAAAACMBm9zLnN5c5Qu", '{"runId": "run", "incarnation": "1", "expirySeconds": 15, "round": 1}'],
)
def test_what_is_no_state_is_refused_with_the_way_out(make, team: Team, plugin, text):
    team.administer("PATCH", "digits", {"data": {"state": text}})
    with pytest.raises(plugin.RendezvousStateError, match="To begin anew: kubectl delete configmap digits"):
        make().get_state()


def test_missing_permission_is_named(make, plugin):
    with pytest.raises(
        plugin.RendezvousConnectionError, match=r"may not get ConfigMap .*/other; grant it as the Role in .*examples/"
    ):
        make(name="other").get_state()


def test_missing_config_map_asks_for_create_or_to_be_made(make, team: Team, plugin):
    team.administer("DELETE", "digits")
    with pytest.raises(plugin.RendezvousConnectionError, match=r"may not create .*or create the ConfigMap beforehand"):
        make().set_state(state())


def test_missing_permission_to_watch_is_named(team: Team):
    with pytest.raises(Forbidden, match=r"may not watch ConfigMap .*/other"):
        list(team.config_map("other").watch("0", 5))


def test_rotated_token_is_read_anew(team: Team):
    config_map = team.config_map("digits")
    config_map.read(0)
    (team.directory / "token").write_text("no longer valid")
    with pytest.raises(Unavailable, match="401"):
        config_map.read(0)

    def rotate():
        new = team.directory / "token.new"
        new.write_text(team.new_token())
        new.replace(team.directory / "token")  # never half a token, as the kubelet does it

    later = threading.Timer(0.5, rotate)
    later.start()
    config_map.read(60)
    later.join()


def test_away_server_is_a_connection_error_in_time(make, team: Team, plugin, control_plane: ControlPlane):
    backend = make()
    backend.set_state(state(round=3))
    backend.patience = 1.0
    control_plane.stop_server()
    try:
        with (
            in_time("the backend to give up", 30),
            pytest.raises(plugin.RendezvousConnectionError, match=r"did not answer"),
        ):
            backend.get_state()
    finally:
        control_plane.start_server()
    assert round_of(backend.get_state()) == 3


def test_connection_that_the_server_has_closed_is_made_anew(make, control_plane: ControlPlane):
    backend = make()
    backend.set_state(state(round=3))
    control_plane.stop_server()
    control_plane.start_server()
    backend.patience = 0.0
    assert round_of(backend.get_state()) == 3


def test_server_of_another_authority_is_refused(team: Team):
    config_map = team.config_map("digits")
    (team.directory / "ca.crt").write_text(OTHER_AUTHORITY)
    with pytest.raises(Unavailable, match="certificate verify failed"):
        config_map.read(0)


def test_labels_and_other_keys_of_the_config_map_stay(make, team: Team):
    team.administer("PATCH", "digits", {"metadata": {"labels": {"team": "blue"}}, "data": {"note": "ours"}})
    make().set_state(state())
    after = team.administer("GET", "digits")
    assert after["metadata"]["labels"] == {"team": "blue"}
    assert set(after["data"]) == {"note", "state"}


def test_deleted_config_map_is_not_found(team: Team):
    team.administer("DELETE", "digits")
    with pytest.raises(NotFound):
        team.config_map("digits").read(0)
