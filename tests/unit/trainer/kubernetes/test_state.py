# SPDX-License-Identifier: Apache-2.0
"""The JSON of torch's rendezvous state, its times, a store's key names, and what torchrun may say."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob_torch.agent.settings import SettingsError
from elasticjob_torch.kubernetes import clock as clock_module
from elasticjob_torch.kubernetes.access import NotInAPod, find_access
from elasticjob_torch.kubernetes.clock import SharedClock
from elasticjob_torch.kubernetes.heartbeats import Pace
from elasticjob_torch.kubernetes.key_names import may_begin_with, name_of
from elasticjob_torch.kubernetes.settings import parse_settings
from elasticjob_torch.kubernetes.state import Header, StateCodec, StateError, read_kept
from support.dynamic_torch import Node, State

HEADER = Header("run", "0a1b2c3d", 15)
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
A, B = Node("10.0.0.1", 7, 0), Node("fd00::2", 1, 3)


def codec(clock: SharedClock | None = None) -> StateCodec:
    return StateCodec(State, Node, clock or SharedClock())


def some_state() -> State:
    return State(
        round=3,
        complete=True,
        deadline=NOW,
        participants={B: 1, A: 0},
        wait_list={Node("10.0.0.9", 1, 0)},
        redundancy_list={A, B},
        last_heartbeats={A: NOW, B: NOW + timedelta(microseconds=1)},
    )


def test_state_survives_the_way_through_json() -> None:
    kept = read_kept(codec().write(HEADER, some_state()))
    assert kept.header == HEADER
    assert vars(codec().read(kept.fields)) == vars(some_state())


def test_json_is_for_people() -> None:
    body = json.loads(codec().write(HEADER, some_state()))
    assert list(body["participants"].items()) == [("10.0.0.1/7/0", 0), ("fd00::2/1/3", 1)]
    assert body["last_heartbeats"]["10.0.0.1/7/0"] == "2026-11-21T12:00:00+00:00"


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("round", "3", "'round' has '3', which is not a whole number"),
        ("round", -1, "'round' has -1"),
        ("round", True, "'round' has True"),
        ("round", 1 << 70, "'round' has"),
        ("complete", 1, "'complete' is 1, not true or false"),
        ("deadline", "soon", "'deadline' has 'soon', which is not a time"),
        ("deadline", "2026-11-21T12:00:00", "not a time with its offset"),
        ("deadline", "0001-01-01T00:00:00+14:00", "not a time"),
        ("participants", [], "'participants' is not an object"),
        ("participants", {"10.0.0.1": 0}, "'10.0.0.1', which is not a node"),
        ("participants", {"a/-1/0": 0}, "not a node"),
        ("participants", {"a/1/0": None}, "'participants' has None"),
        ("wait_list", {}, "'wait_list' is not a list"),
        ("wait_list", [1], "'wait_list' has 1, which is not a node"),
        ("last_heartbeats", {"a/1/0": 12}, "'last_heartbeats' has 12, which is not a time"),
        ("stranger", 1, r"the field\(s\) stranger"),
    ],
)
def test_wrong_field_is_named(field: str, value: object, complaint: str) -> None:
    kept = read_kept(codec().write(HEADER, some_state()))
    with pytest.raises(StateError, match=complaint):
        codec().read({**kept.fields, field: value})


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", '{"runId": 1, "incarnation": "", "expirySeconds": 1}', "[" * 100_000]
)
def test_text_that_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(StateError):
        read_kept(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(field=st.sampled_from(sorted(vars(State()))), value=json_values)
def test_any_value_of_a_field_is_read_or_refused(field: str, value: object) -> None:
    kept = read_kept(codec().write(HEADER, some_state()))
    with suppress(StateError):
        codec().write(HEADER, codec().read({**kept.fields, field: value}))


def test_unknown_field_of_torch_is_refused_when_the_handler_is_made() -> None:
    class Newer(State):
        speeds: dict[Node, float]

    with pytest.raises(StateError, match=r"the field 'speeds' of type dict.* use torch 2\.6 to"):
        StateCodec(Newer, Node, SharedClock())


def test_field_that_torch_sets_beside_its_own_is_refused() -> None:
    with pytest.raises(StateError, match="unknown field 'extra'"):
        codec().write(HEADER, State(extra=1))


class Clock:
    """Moves this machine's time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.local = NOW
        monkeypatch.setattr(clock_module, "now", lambda: self.local)

    def date(self, ahead: float = 0) -> str:
        return format_datetime(self.local + timedelta(seconds=ahead), usegmt=True)


def test_nodes_with_different_clocks_agree_on_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Clock(monkeypatch)
    ahead, behind = SharedClock(), SharedClock()
    ahead.answered(machine.date(-100))
    behind.answered(machine.date(+100))
    beat = read_kept(codec(ahead).write(HEADER, State(last_heartbeats={A: NOW}))).fields
    # 100 s before this machine's time the server had what its own clock, 200 s behind the other's, shows then
    difference = codec(behind).read(beat).last_heartbeats[A] - (NOW - timedelta(seconds=200))
    assert abs(difference) <= timedelta(seconds=1)


def test_small_differences_of_clocks_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, machine = SharedClock(), Clock(monkeypatch)
    clock.answered(machine.date(-1))
    assert clock.to_server(NOW) == NOW


def test_a_slow_answer_does_not_move_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time was right when the server wrote it, and the answer was under way for six seconds."""
    clock, machine = SharedClock(), Clock(monkeypatch)
    clock.answered(machine.date())
    clock.answered(machine.date(-6), seconds=6)
    assert clock.to_server(NOW) == NOW


@given(st.lists(st.text(), unique=True, max_size=20))
def test_names_of_keys_are_valid_and_different(keys: list[str]) -> None:
    names = [name_of(key) for key in keys]
    assert len(set(names)) == len(keys)
    for name in names:
        assert 0 < len(name) <= 253
        assert all(letter.isascii() and (letter.isalnum() or letter in "-._") for letter in name)
        assert not name.startswith("..")
        assert name != "."


@given(st.text(max_size=100), st.text())
def test_names_are_found_by_the_beginning_of_their_keys(prefix: str, rest: str) -> None:
    assert may_begin_with(name_of(prefix + rest), prefix)


def test_names_do_not_begin_like_others() -> None:
    assert not may_begin_with(name_of("run.10/a"), "run.1/")
    assert name_of("MASTER_ADDR") == "MASTER_5FADDR"


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [("team/run", ("team", "run")), ("run.with.dots", ("", "run.with.dots"))],
)
def test_endpoint_names_a_config_map(endpoint: str, expected: tuple[str, str]) -> None:
    settings = parse_settings(endpoint, {"timeout": 900})
    assert (settings.namespace, settings.name) == expected
    assert settings.pace.expiry_seconds == 15
    assert settings.longest_pause == 0


@pytest.mark.parametrize(
    "endpoint", ["", "/", "a/", "/a", "a/b/c", "host:29400", "Team/run", "team/Run", "a/b:1", "team/" + "n" * 250]
)
def test_wrong_endpoint_is_named(endpoint: str) -> None:
    with pytest.raises(SettingsError, match="--rdzv-endpoint"):
        parse_settings(endpoint, {})


def test_keys_of_torch_keep_their_names() -> None:
    assert parse_settings("run", {"cas_backoff_max_seconds": "0.5"}).longest_pause == 0.5
    given_ = {"join_timeout": "60", "heartbeat": "7", "keep_alive_interval": "2", "keep_alive_max_attempt": "4"}
    settings = parse_settings("run", given_)
    assert settings.config["join_timeout"] == 60
    assert settings.config["heartbeat_timeout"] == 7
    assert settings.config["last_call_timeout"] == 30
    assert settings.pace == Pace(2, 4)


def test_keys_of_c10d_are_accepted_with_a_word() -> None:
    """As the job's own backend does it: people have them in their scripts."""
    given_ = {"timeout": 900, "is_host": "1", "read_timeout": "60", "store_type": "tcp"}
    told = [f"--rdzv-conf {key} has no effect with this backend" for key in ("is_host", "read_timeout", "store_type")]
    assert [*parse_settings("run", given_).ignored] == told


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"joint_timeout": "1"}, "unknown key 'joint_timeout'; known are: join_timeout, last_call_timeout"),
        ({"join_timeout": "0"}, "join_timeout=0 is not a positive whole number"),
        ({"close_timeout": "1.5"}, "close_timeout=1.5 is not"),
        ({"cas_backoff_max_seconds": "-1"}, "cas_backoff_max_seconds=-1 is not a number of seconds"),
        ({"cas_backoff_max_seconds": "inf"}, "cas_backoff_max_seconds=inf is not"),
        ({"cas_backoff_max_seconds": "much"}, "cas_backoff_max_seconds=much is not"),
    ],
)
def test_wrong_key_is_named(config: dict[str, str], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        parse_settings("run", config)


def test_missing_service_account_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotInAPod, match="KUBERNETES_SERVICE_HOST"):
        find_access({}, tmp_path)
    server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(NotInAPod, match=r"no .*ca\.crt; set spec\.serviceAccountName"):
        find_access(server, tmp_path)
    for name in ("ca.crt", "token"):
        (tmp_path / name).write_text("x\n")
    assert find_access(server, tmp_path).token() == "x"
