# SPDX-License-Identifier: Apache-2.0
"""The event stream: the newest view in memory, and the connection that tells that the agent lives."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import elasticjob_torch
from elasticjob_torch.sidecar import events as module
from elasticjob_torch.sidecar.address import Address
from elasticjob_torch.sidecar.events import EventStream, Lines
from elasticjob_torch.wire import Phase, View
from support.trainer_sidecar import refusal
from support.waiting import wait_until


@pytest.fixture
def stream(sidecar):
    events = EventStream(Address("127.0.0.1", sidecar.port), "t" * 32)
    events.start()
    yield events
    events.stop()


def test_newest_view_is_in_memory(sidecar, stream):
    sidecar.tell(round=1, phase=Phase.FORMED, worldSize=2)
    wait_until("the first view", lambda: stream.view == View(round=1, phase=Phase.FORMED, world_size=2))
    sidecar.tell(round=2, phase=Phase.FORMING, waiting=1, changed=True, handed=1, reason="scaled from 2 to 3")
    now = {"waiting": 1, "handed": 1, "changed": True, "reason": "scaled from 2 to 3"}
    expected = View(round=2, phase=Phase.FORMING, world_size=2, **now)
    wait_until("the second view", lambda: stream.view == expected)


def test_the_last_view_stands_while_the_sidecar_restarts(sidecar, stream):
    sidecar.tell(round=1, phase=Phase.FORMED)
    wait_until("the view", lambda: stream.view is not None and stream.view.round == 1)
    stream.handed = 1
    sidecar.stop()
    wait_until("the end of the stream", lambda: not stream.connected.is_set())
    assert stream.view is not None
    assert stream.view.round == 1
    sidecar.start()
    sidecar.await_(lambda: sidecar.streams == 1, "the stream")
    assert [asked["round"] for asked in sidecar.said("GET /v1/rendezvous/events")] == ["0", "1"]


def test_the_present_view_is_the_one_that_the_open_stream_has_told(sidecar, stream):
    wait_until("the view", lambda: stream.present_view is not None)
    sidecar.stop()
    wait_until("the end of the stream", lambda: stream.present_view is None)
    sidecar.view, view = {}, sidecar.view  # it has not seen the job yet
    sidecar.start()
    sidecar.await_(lambda: sidecar.streams == 1, "the stream")
    assert stream.opens(5)
    assert stream.present_view is None
    sidecar.tell(**view)
    wait_until("the view", lambda: stream.present_view is not None)


def test_a_sidecar_that_stays_away_is_told(sidecar, stream, monkeypatch, caplog):
    monkeypatch.setattr(module, "_LOG_SECONDS", 0.2)
    wait_until("the view", lambda: stream.view is not None)
    sidecar.stop()
    told = re.compile(r"no events from the sidecar for \d+ s, trying on: .*refused")
    wait_until("the warning", lambda: any(map(told.match, caplog.messages)))


def test_a_stream_that_was_replaced_stays_away(sidecar):
    sidecar.answers["GET /v1/rendezvous/events"] = [refusal(409, "Superseded")]
    events = EventStream(Address("127.0.0.1", sidecar.port), "t")
    events.start()
    wait_until("the refusal", lambda: events.superseded)
    events.stop()
    assert len(sidecar.requests) == 1


def test_stop_ends_the_connection(sidecar, stream):
    sidecar.await_(lambda: sidecar.streams == 1, "the stream")
    stream.stop()
    sidecar.await_(lambda: sidecar.streams == 0, "its end")


AGENT = """
import os, sys, time
from elasticjob_torch.sidecar.address import Address
from elasticjob_torch.sidecar.events import EventStream
stream = EventStream(Address("127.0.0.1", int(sys.argv[1])), "t")
stream.start()
assert stream.connected.wait(60)
child = os.fork()
if child == 0:
    time.sleep(60)
print(child, flush=True)
time.sleep(60)
"""


def test_a_killed_agent_is_noticed_though_its_forked_child_lives(sidecar):
    path = {**os.environ, "PYTHONPATH": str(Path(elasticjob_torch.__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", AGENT, str(sidecar.port)], stdout=subprocess.PIPE, env=path) as agent:
        assert agent.stdout is not None
        child = int(agent.stdout.readline())
        try:
            sidecar.await_(lambda: sidecar.streams == 1, "the stream")
            agent.kill()
            sidecar.await_(lambda: sidecar.streams == 0, "the end of the killed agent's stream")
            os.kill(child, 0)  # the child does live
        finally:
            os.kill(child, signal.SIGKILL)


def test_lines():
    lines = [b": still here\n", b"\n", b"data: one\n", b"data:two\r\n", b"id: 7\n", b"\n", b"data: cut off\n"]
    stream = Lines()
    assert [event for line in lines if (event := stream.take(line)) is not None] == ["one\ntwo"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("[]", "must be a JSON object"),
        ("{}", "round: is missing"),
        ('{"round": null, "phase": "Formed"}', "round: must be whole number from 0, not None"),
        ('{"round": "x", "phase": ""}', "round: must be whole number from 0, not 'x'"),
        ('{"round": 1, "phase": ""}', "phase: must be one of Forming, Formed, Closed, not ''"),
    ],
)
def test_an_event_without_sense_is_a_value_error(data, said):
    with pytest.raises(ValueError, match=said):
        View.from_json(json.loads(data))


@pytest.mark.parametrize(
    ("view", "ended"),
    [
        (View(round=3, phase=Phase.FORMED, handed=3), False),
        (View(round=3, phase=Phase.CLOSED, handed=3, closed=True), False),
        (View(round=4, phase=Phase.FORMING, handed=3, changed=True), True),
        (View(round=4, phase=Phase.FORMING), True),
        (View(round=3, phase=Phase.FORMED, leaving=True), True),
        # the sidecar restarted and no longer takes part in the round
        (View(round=3, phase=Phase.FORMED, handed=3, changed=True), True),
        # sent before round 3 was handed over, read after it
        (View(round=3, phase=Phase.FORMING, handed=2, changed=True), False),
        (View(round=2, phase=Phase.FORMED, handed=2), False),
    ],
)
def test_which_view_ends_round_3(view, ended):
    assert view.ends_round(3) is ended
