# SPDX-License-Identifier: Apache-2.0
"""The wire says what both sides do: neither gains or loses a call, a field, a word or a limit alone."""

import json
import threading
from typing import Any, cast, get_args, get_type_hints
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from pydantic import TypeAdapter

from elasticjob import api, fields, terms
from elasticjob_sidecar.membership import refusal
from elasticjob_sidecar.trainer_api.routes import TrainerApi
from elasticjob_torch import wire
from elasticjob_torch.agent import stalls
from elasticjob_torch.script import api as script
from elasticjob_torch.script.client import ReportedProgress, ScriptStream, Sender
from elasticjob_torch.sidecar.address import Address
from elasticjob_torch.sidecar.client import SidecarClient
from elasticjob_torch.sidecar.errors import REFUSALS, SidecarRefusal
from elasticjob_torch.sidecar.events import EventStream
from elasticjob_torch.wire.fields import fields_of
from support.trainer_sidecar import Sidecar, handed

NAME = "t" * 32
FAILED = wire.Failure("a", 1, wire.FailureKind.MESSAGE)


def keys(message: type[wire.Message]) -> set[str]:
    return {field.key for field in fields_of(message)}


def needed(message: type[wire.Message]) -> set[str]:
    return {field.key for field in fields_of(message) if field.needed}


# --- calls and fields


def test_every_call_is_in_the_list() -> None:
    assert {call for call in vars(wire).values() if isinstance(call, wire.Call)} == set(wire.CALLS)
    assert {code for call in wire.CALLS for code in (*call.refusals, *call.common_refusals)} == set(wire.Code)


def test_the_sidecar_serves_these_calls_and_no_others() -> None:
    app = TrainerApi(cast("Any", None), cast("Any", None), ("127.0.0.1", 1), "job", "uid", 600.0).app()
    served = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None}
    assert served == {(call.method, call.path) for call in wire.CALLS}


@pytest.mark.parametrize(
    "message",
    sorted({one for call in wire.CALLS for one in (call.sends, call.answers) if one is not None}, key=repr),
)
def test_each_message_of_the_calls_says_what_its_fields_mean(message: type[wire.Message]) -> None:
    assert keys(message)
    assert all(field.meaning.endswith((".", "`")) for field in fields_of(message)), message
    hints = get_type_hints(message)
    for field in fields_of(message):
        if not field.needed:
            field.check(field.default)
        assert field.nullable is (type(None) in get_args(hints[field.name]))


def test_the_plug_in_sends_what_the_wire_says(sidecar: Sidecar) -> None:
    """Every call, made by the plug-in's own code, is one that the sidecar's models take."""
    sidecar.answers["POST /v1/rendezvous"] = [handed(3), handed(4)]
    sidecar.answers["GET /v1/store"] = [(200, {"host": "127.0.0.1", "port": 27400})]
    client = SidecarClient(Address("127.0.0.1", sidecar.port), NAME, patience=5)
    client.view()
    limits = {"last_call": 5, "worker_lost": 20}
    client.join(2, wire.JoinCause.WORKER_FAILED, 60, limits=limits, failure=FAILED)
    client.join(3, wire.JoinCause.MEMBERSHIP_CHANGED, 60, live=True)
    client.tell_live(3)
    client.post_store(3, 40001)
    client.await_store(3, 20)
    client.leave(wire.LeaveCause.WORKER_FAILED, 5, wire.Failure("b", 42))
    client.finish(3, 5)
    client.close(5)
    client.tell_imports(["torch", "torch.distributed"])
    client.tell_processes(3, wire.ProcessState.WAITS, 0)
    connected = threading.Event()
    connected.set()
    sender = Sender(Address("127.0.0.1", sidecar.port), NAME, 1, connected)
    sender.saved(3)
    sidecar.await_(lambda: bool(sidecar.said("POST /v1/saved")), "the word that the script has saved")
    sender.report(ReportedProgress(7, 9, {"loss": 0.5}, 0.25))
    sender.close(5)
    targets = [urlsplit(stream.target()) for stream in _streams()]
    sent = [
        *sidecar.requests,
        *((f"GET {url.path}", dict(parse_qsl(url.query, keep_blank_values=True))) for url in targets),
    ]
    assert {name for name, _ in sent} == {f"{call.method} {call.path}" for call in wire.CALLS}
    for name, body in sent:
        call = next(call for call in wire.CALLS if name == f"{call.method} {call.path}")
        if call.sends is None:
            assert not body
        else:
            assert needed(call.sends) <= body.keys() <= keys(call.sends), name
            is_query = call.method == "GET"
            (call.sends.from_query if is_query else call.sends.from_json)(body)


def _streams() -> tuple[EventStream, ScriptStream]:
    return EventStream(Address("127.0.0.1", 1), NAME), ScriptStream(Address("127.0.0.1", 1), NAME)


# --- words


def test_phases_and_outcomes_are_those_of_the_job() -> None:
    assert set(wire.Phase) == set(terms.RendezvousPhase)
    assert set(wire.Outcome) == set(terms.Outcome)


def test_what_processes_do_has_the_words_of_the_record() -> None:
    assert [*wire.FailureKind] == [*terms.FailureKind]  # in the same order
    assert set(wire.ProcessState) == set(terms.ProcessState) == set(stalls._SEVERITY) == set(stalls._WORDS)


@pytest.mark.parametrize(
    ("model", "fields", "causes"),
    [(wire.Join, {}, wire.JoinCause), (wire.Leave, {}, wire.LeaveCause)],
    ids=["join", "leave"],
)
def test_a_trainer_may_name_these_causes_and_no_others(model: Any, fields: dict[str, Any], causes: Any) -> None:
    """The others are the sidecar's own words about a trainer."""
    assert set(causes) <= set(terms.RequestCause)
    for cause in terms.RequestCause:
        try:
            model.from_json({"trainer": NAME, "cause": cause.value, **fields})
        except wire.InvalidMessage:
            assert cause not in set(causes)
        else:
            assert cause in set(causes)


def test_sidecars_refuse_one_another_with_words_that_no_trainer_is_told() -> None:
    assert not {str(code) for code in refusal.PeerCode} & {str(code) for code in wire.Code}
    assert set(wire.REFUSALS) == set(wire.Code)


def test_the_plug_in_has_an_error_for_each_refusal() -> None:
    """Those without one of their own end a call as it is: nothing else depends on them."""
    plain = {wire.Code.BAD_REQUEST, wire.Code.BODY_LATE, wire.Code.TOO_MANY, wire.Code.API_AWAY}
    assert set(REFUSALS) | plain == set(wire.Code)
    assert not set(REFUSALS) & plain


def test_a_word_is_what_it_says() -> None:
    assert f"{wire.Code.CLOSED}" == str(wire.Code.CLOSED) == "%s" % wire.Code.CLOSED == "Closed"  # noqa: UP031


# --- limits


def test_limits_are_those_of_the_api() -> None:
    shared = {name for name in vars(wire) if name.isupper() and hasattr(api, name)}
    assert {name: getattr(wire, name) for name in shared} == {name: getattr(api, name) for name in shared}
    assert {"MAX_JSON_INTEGER", "DETAIL_LENGTH", "METRIC_NAME_LENGTH"} <= shared
    assert (wire.PORT, wire.MAX_METRICS) == (api.TRAINER_API_PORT, api.MAX_METRICS)
    assert wire.IMPORTS_LENGTH == fields.IMPORTS_LENGTH
    keep_alive = TypeAdapter(api.KeepAlive).json_schema()
    assert keep_alive["minimum"] == wire.SHORTEST_WORKER_LOST_SECONDS
    assert keep_alive["maximum"] == TypeAdapter(api.Seconds).json_schema()["maximum"] == wire.LONGEST_SECONDS


@pytest.mark.parametrize("names", [["t" * 100] * 300, ["t"] * 300, [], ["torch", "sklearn.datasets"]])
def test_imports_that_the_plug_in_tells_are_taken_and_fit_a_record(sidecar: Sidecar, names: list[str]) -> None:
    client = SidecarClient(Address("127.0.0.1", sidecar.port), NAME, patience=5)
    client.tell_imports(names)
    ((_, body),) = sidecar.requests
    taken = wire.Imports.from_json(body).imports
    api.ElasticWorkerStatus(imports=",".join(taken))
    assert taken == names[: len(taken)]
    assert len(taken) in (min(len(names), wire.MAX_IMPORTS), (wire.IMPORTS_LENGTH + 1) // 101)


def test_imports_whose_names_cannot_be_told_are_left_out(sidecar: Sidecar) -> None:
    """A module may have any name; a record holds plain ones, each of which is one word of a list."""
    longest = "m" * wire.IMPORT_LENGTH
    client = SidecarClient(Address("127.0.0.1", sidecar.port), NAME, patience=5)
    client.tell_imports(["a,b", "torch", "", "é", "a\n", "a..b", ".a", "7", longest + "m", longest, "_a.b_7"])
    assert sidecar.requests == [("POST /v1/imports", {"imports": ["torch", longest, "_a.b_7"]})]


def test_a_metric_that_a_script_may_report_is_one_that_the_sidecar_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_client": None, "_decided": True, "_progress": ReportedProgress()}.items():  # outside of a job
        monkeypatch.setattr(script, name, value)
    longest = "m" * wire.METRIC_NAME_LENGTH
    script.report(**{longest: 1.0})
    wire.ProgressReport.from_json({"metrics": {longest: 1.0}})
    with pytest.raises(ValueError, match="must be a letter"):
        script.report(**{longest + "m": 1.0})
    with pytest.raises(wire.InvalidMessage):
        wire.ProgressReport.from_json({"metrics": {longest + "m": 1.0}})


# --- what must not be sent is not made, and not read


WRONG = {
    "a field is missing": (wire.Finish, {"trainer": NAME}, "round: is missing; it must be whole number from 1"),
    "truth for a number": (
        wire.Finish,
        {"trainer": NAME, "round": True},
        "round: must be whole number from 1",
    ),
    "text for a number": (wire.Finish, {"trainer": NAME, "round": "1"}, "round: must be whole number"),
    "a number below its least": (wire.Finish, {"trainer": NAME, "round": 0}, "round: must be whole number from 1"),
    "a number that not all read": (wire.Watch, {"script": NAME, "saves": 1}, "saves: must be true or false"),
    "half a character": (wire.Join, {"trainer": "\ud800"}, "trainer: must be text of 1 to 64 characters"),
    "no name": (wire.Join, {"trainer": ""}, "trainer: must be text of 1 to 64 characters"),
    "a long name": (wire.Join, {"trainer": "t" * 65}, "trainer: must be text of 1 to 64 characters"),
    "no time": (wire.Close, {"trainer": NAME, "timeout": 0}, "timeout: must be number above 0, at most 86400"),
    "endless time": (wire.Close, {"trainer": NAME, "timeout": float("inf")}, "timeout: must be number above 0"),
    "no number": (wire.Close, {"trainer": NAME, "timeout": float("nan")}, "timeout: must be number above 0"),
    "no start": (wire.Events, {"trainer": NAME, "container": "a"}, "container: must be text of 0 to 20 characters"),
    "an unknown word": (wire.Leave, {"trainer": NAME, "cause": "AgentLost"}, "cause: must be one of TrainerLeft, "),
    "a list of numbers": (wire.Imports, {"imports": [7]}, "imports.0: must be text of 1 to 128 characters, not 7"),
    "a long list": (wire.Imports, {"imports": ["a"] * 257}, "imports: must be list of at most 256"),
    "too many characters": (wire.Imports, {"imports": ["a" * 128] * 64}, "imports: must be at most 8192 characters"),
    "too many metrics": (wire.ProgressReport, {"metrics": {str(n): 1 for n in range(17)}}, "metrics: must be object"),
    "a metric of text": (wire.ProgressReport, {"metrics": {"loss": "1"}}, "metrics.loss: must be number, not '1'"),
    "a metric without a name": (
        wire.ProgressReport,
        {"metrics": {"": 1}},
        "metrics.'': must be text of 1 to 64 characters",
    ),
    "a share above 1": (wire.ProgressReport, {"waits": 1.5}, "waits: must be number from 0 to 1"),
    "no object": (wire.ProgressReport, [], "must be a JSON object, not []"),
    "no port": (wire.StoreAddress, {"host": "127.0.0.1", "port": 0}, "port: must be whole number from 1 to 65535"),
    "no object inside": (
        wire.Round,
        {"round": 1, "rank": 0, "worldSize": 1, "runId": "", "store": 7},
        "must be a JSON object, not 7",
    ),
}


@pytest.mark.parametrize(("message", "body", "sentence"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_message_is_refused_by_a_sentence_that_names_the_field(message: Any, body: Any, sentence: str) -> None:
    with pytest.raises(wire.InvalidMessage) as refused:
        message.from_json(body)
    assert str(refused.value).startswith(sentence)


def test_a_wrong_message_is_not_made() -> None:
    with pytest.raises(wire.InvalidMessage, match="timeout: must be number above 0, at most 86400, not 0"):
        wire.Close(trainer=NAME, timeout=0)


def test_a_call_that_must_not_be_made_is_refused_as_the_sidecar_would(sidecar: Sidecar) -> None:
    client = SidecarClient(Address("127.0.0.1", sidecar.port), NAME, patience=5)
    with pytest.raises(SidecarRefusal, match="exitCode: must be whole number from 1 to 255, not 0") as refused:
        client.leave(wire.LeaveCause.TRAINER_LEFT, 5, wire.Failure("", 0))
    assert refused.value.code == wire.Code.BAD_REQUEST
    assert not sidecar.requests


MESSAGES = (
    wire.Events(trainer=NAME, pid=7, container="12", script="train.py"),
    wire.Join(
        trainer=NAME,
        after=2,
        cause=wire.JoinCause.WORKER_FAILED,
        exit_code=1,
        last_call=5,
        detail="a",
        failure_kind=FAILED.kind,
    ),
    wire.AskedStore(round=3, timeout=2.5),
    wire.Watch(script=NAME, saves=True),
    wire.ProgressReport(step=7, total=None, metrics={"loss": 0.5}, waits=0.25),
    wire.View(round=2, phase=wire.Phase.FORMED, world_size=4, changed=True, outcome="Failed"),
    wire.Ours(rank=None, job="digits", run_id="uid"),
    wire.Round(number=1, rank=0, world_size=2, run_id="uid", store=wire.StoreAddress("127.0.0.1", 7)),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_one_side_writes_the_other_reads(message: wire.Message) -> None:
    kind = type(message)
    assert kind.from_json(json.loads(json.dumps(message.to_json()))) == message
    if kind in [call.sends for call in wire.CALLS if call.method == "GET"]:
        assert kind.from_query(dict(parse_qsl(urlencode(message.to_query()), keep_blank_values=True))) == message


def test_numbers_that_are_not_finite_are_left_out() -> None:
    said = {"loss": float("nan"), "lr": float("inf"), "steps": 10**400, "accuracy": 0.5}
    assert wire.ProgressReport.from_json({"metrics": said}).metrics == {"accuracy": 0.5}


def test_fields_that_a_message_does_not_have_are_passed_over() -> None:
    assert wire.Close.from_json({"trainer": NAME, "later": 7}) == wire.Close(trainer=NAME)
