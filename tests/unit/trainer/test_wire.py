"""The wire says what both sides do: neither gains or loses a call, a field, a word or a limit alone."""

import dataclasses
import inspect
import threading
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from elasticjob import api, terms
from elasticjob.api import Member, RendezvousStatus
from elasticjob_sidecar.membership import refusal
from elasticjob_sidecar.membership.machine import Membership
from elasticjob_sidecar.membership.scripts import script_view_of
from elasticjob_sidecar.membership.view import view_of
from elasticjob_sidecar.trainer_api import bodies
from elasticjob_sidecar.trainer_api.routes import TrainerApi
from elasticjob_torch import wire
from elasticjob_torch.agent import stalls
from elasticjob_torch.script import api as script
from elasticjob_torch.script.client import Progress, ScriptStream, ScriptView, Sender
from elasticjob_torch.sidecar.address import Address
from elasticjob_torch.sidecar.client import SidecarClient
from elasticjob_torch.sidecar.errors import REFUSALS
from elasticjob_torch.sidecar.events import EventStream, View
from support.trainer_sidecar import Sidecar, handed

NAME = "t" * 32


def model_of(call: wire.Call) -> type[BaseModel]:
    """The sidecar's model of what the call sends; it has the name of the wire's."""
    assert call.sends is not None
    model: type[BaseModel] = getattr(bodies, call.sends.__name__)
    return model


def with_fields() -> list[wire.Call]:
    return [call for call in wire.CALLS if call.sends is not None]


# --- calls and fields


def test_every_call_is_in_the_list() -> None:
    assert {call for call in vars(wire).values() if isinstance(call, wire.Call)} == set(wire.CALLS)
    assert {code for call in wire.CALLS for code in call.refusals} | {wire.Code.BAD_REQUEST} == set(wire.Code)


def test_the_sidecar_serves_these_calls_and_no_others() -> None:
    app = TrainerApi(cast("Any", None), cast("Any", None), ("127.0.0.1", 1), "job", "uid", 600.0).app()
    served = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None}
    assert served == {(call.method, call.path) for call in wire.CALLS}


@pytest.mark.parametrize("call", with_fields(), ids=lambda call: f"{call.method} {call.path}")
def test_a_body_has_the_fields_of_the_wire(call: wire.Call) -> None:
    fields = {field.alias or name: field for name, field in model_of(call).model_fields.items()}
    assert call.sends is not None
    assert set(fields) == set(call.sends.__annotations__)
    assert {name for name, field in fields.items() if field.is_required()} == call.sends.__required_keys__


def test_every_body_belongs_to_a_call() -> None:
    models = {one for one in vars(bodies).values() if inspect.isclass(one) and issubclass(one, BaseModel)}
    bases = {base for model in models for base in model.__mro__[1:]}
    assert models - bases == {model_of(call) for call in with_fields()} | {BaseModel} - bases


def test_what_trainers_and_scripts_are_told_has_the_fields_of_the_wire() -> None:
    membership = Membership(Member(0, "0"))
    membership.job_seen(RendezvousStatus(), 0.0)
    standing = membership.take().standing
    view, script_view = view_of(standing), script_view_of(standing)
    assert view is not None
    assert script_view is not None
    assert set(view) == set(wire.View.__annotations__)
    assert set(script_view) == set(wire.ScriptView.__annotations__)


def test_the_plug_in_reads_every_field_of_a_view() -> None:
    told: dict[str, Any] = dict.fromkeys(wire.View.__annotations__, 7)
    read = View.from_json(told)
    assert {field.name for field in dataclasses.fields(View)} == {_snake(name) for name in told}
    unread = [field.name for field in dataclasses.fields(View) if getattr(read, field.name) == field.default]
    assert not unread


def test_a_script_reads_every_field_of_its_view() -> None:
    fields = {field.name for field in dataclasses.fields(ScriptView)} - {"since"}  # that one is its own
    assert fields == set(wire.ScriptView.__annotations__)
    stream = ScriptStream(Address("127.0.0.1", 1), NAME)
    for name in fields:
        with pytest.raises(ValueError, match=name):
            stream.take(dict.fromkeys(fields - {name}, 1))


def test_the_plug_in_sends_what_the_wire_says(sidecar: Sidecar) -> None:
    """Every call, made by the plug-in's own code, is one that the sidecar's models take."""
    sidecar.answers["POST /v1/rendezvous"] = [handed(3)]
    sidecar.answers["GET /v1/store"] = [(200, {"host": "127.0.0.1", "port": 27400})]
    client = SidecarClient(Address("127.0.0.1", sidecar.port), NAME, patience=5)
    client.view()
    client.join(2, wire.JoinCause.WORKER_FAILED, 60, limits={"lastCall": 5, "workerLost": 20}, detail="a", exit_code=1)
    client.post_store(3, 40001)
    client.await_store(3, 20)
    client.leave(wire.LeaveCause.TRAINER_LEFT, 5, exit_code=42)
    client.finish(3, 5)
    client.close(5)
    client.tell_imports(["torch", "torch.distributed"])
    client.tell_processes(3, wire.ProcessState.WAITS, 0)
    connected = threading.Event()
    connected.set()
    sender = Sender(Address("127.0.0.1", sidecar.port), NAME, 1, connected)
    sender.saved(3)
    sidecar.await_(lambda: bool(sidecar.said("POST /v1/saved")), "the word that the script has saved")
    sender.report(Progress(7, 9, {"loss": 0.5}, 0.25))
    sender.close(5)
    targets = [urlsplit(stream.target()) for stream in _streams()]
    sent = [*sidecar.requests, *((f"GET {url.path}", dict(parse_qsl(url.query))) for url in targets)]
    assert {name for name, _ in sent} == {f"{call.method} {call.path}" for call in wire.CALLS}
    for name, body in sent:
        call = next(call for call in wire.CALLS if name == f"{call.method} {call.path}")
        if call.sends is None:
            assert not body
        else:
            assert call.sends.__required_keys__ <= body.keys() <= set(call.sends.__annotations__), name
            model_of(call).model_validate(body)


def _streams() -> tuple[EventStream, ScriptStream]:
    return EventStream(Address("127.0.0.1", 1), NAME), ScriptStream(Address("127.0.0.1", 1), NAME)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


# --- words


def test_phases_and_outcomes_are_those_of_the_job() -> None:
    assert set(wire.Phase) == set(terms.RendezvousPhase)
    assert set(wire.Outcome) == set(terms.Outcome)


def test_what_processes_do_has_the_words_of_the_record() -> None:
    assert set(wire.ProcessState) == set(terms.ProcessState) == set(stalls._SEVERITY) == set(stalls._WORDS)


@pytest.mark.parametrize(
    ("model", "fields", "causes"),
    [(bodies.Join, {}, wire.JoinCause), (bodies.Leave, {}, wire.LeaveCause)],
    ids=["join", "leave"],
)
def test_a_trainer_may_name_these_causes_and_no_others(model: Any, fields: dict[str, Any], causes: Any) -> None:
    """The others are the sidecar's own words about a trainer."""
    assert set(causes) <= set(terms.Cause)
    for cause in terms.Cause:
        try:
            model.model_validate({"trainer": NAME, "cause": cause.value, **fields})
        except ValidationError:
            assert cause not in set(causes)
        else:
            assert cause in set(causes)


def test_the_sidecar_refuses_with_the_words_of_the_wire() -> None:
    """What it has besides is said between sidecars only."""
    assert set(refusal.Code) - set(wire.Code) == {refusal.Code.NOT_A_MEMBER, refusal.Code.NOT_YET}
    assert set(wire.Code) <= set(refusal.Code)
    assert set(wire.REFUSALS) == set(wire.Code)


def test_the_plug_in_has_an_error_for_each_refusal() -> None:
    """Those without one of their own end a call as it is: nothing else depends on them."""
    plain = {wire.Code.BAD_REQUEST, wire.Code.TOO_MANY, wire.Code.API_AWAY}
    assert set(REFUSALS) | plain == set(wire.Code)
    assert not set(REFUSALS) & plain


def test_a_word_is_what_it_says() -> None:
    assert f"{wire.Code.CLOSED}" == str(wire.Code.CLOSED) == "%s" % wire.Code.CLOSED == "Closed"  # noqa: UP031


# --- limits


def test_limits_are_those_of_the_api() -> None:
    shared = {name for name in vars(wire) if name.isupper() and hasattr(api, name)}
    assert {name: getattr(wire, name) for name in shared} == {name: getattr(api, name) for name in shared}
    assert {"MAX_JSON_INTEGER", "DETAIL_LENGTH", "METRIC_NAME_LENGTH", "IMPORTS_LENGTH"} <= shared
    assert (wire.PORT, wire.MAX_METRICS) == (api.TRAINER_API_PORT, api.MAX_METRICS)
    keep_alive = TypeAdapter(api.KeepAlive).json_schema()
    assert keep_alive["minimum"] == wire.SHORTEST_WORKER_LOST_SECONDS
    assert keep_alive["maximum"] == TypeAdapter(api.Seconds).json_schema()["maximum"] == wire.LONGEST_SECONDS


@pytest.mark.parametrize("names", [["t" * 100] * 300, ["t"] * 300, [], ["torch", "sklearn.datasets"]])
def test_imports_that_the_plug_in_tells_are_taken_and_fit_a_record(sidecar: Sidecar, names: list[str]) -> None:
    client = SidecarClient(Address("127.0.0.1", sidecar.port), NAME, patience=5)
    client.tell_imports(names)
    ((_, body),) = sidecar.requests
    taken = bodies.Imports.model_validate(body).imports
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
    for name, value in {"_client": None, "_decided": True, "_progress": Progress()}.items():  # outside of a job
        monkeypatch.setattr(script, name, value)
    longest = "m" * wire.METRIC_NAME_LENGTH
    script.report(**{longest: 1.0})
    bodies.Report.model_validate({"metrics": {longest: 1.0}})
    with pytest.raises(ValueError, match="must be a letter"):
        script.report(**{longest + "m": 1.0})
    with pytest.raises(ValidationError):
        bodies.Report.model_validate({"metrics": {longest + "m": 1.0}})
