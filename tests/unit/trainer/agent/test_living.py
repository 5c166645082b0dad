# SPDX-License-Identifier: Apache-2.0
"""The agent and training processes that live through changes: what they tell each other over the socket."""

import socket

import pytest

from elasticjob_torch.agent.living import Living
from elasticjob_torch.agent.messages import (
    SOCKET,
    Enter,
    Over,
    Saves,
    Stop,
    Waits,
    from_line,
    from_variable,
    received,
    send,
    to_line,
)
from support.waiting import wait_until


@pytest.fixture
def living():
    made = Living()
    yield made
    made.close()


class Process:
    """A training process's side."""

    def __init__(self, living, start="", local_rank=0):
        told, path = from_variable(living.variables[SOCKET])
        self.start, self.local_rank = start or told, local_rank
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(path)
        self.messages = received(self.socket)

    def waits(self, number):
        send(self.socket, Waits(start=self.start, local_rank=self.local_rank, round=number))

    def saves(self, saving):
        send(self.socket, Saves(start=self.start, local_rank=self.local_rank, saving=saving))

    def hears(self):
        return next(self.messages)

    def close(self):
        self.socket.close()


@pytest.fixture
def process(living):
    made = []

    def make(**options):
        made.append(Process(living, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize(
    "message",
    [
        Waits(start="a", local_rank=1, round=3),
        Saves(start="a", local_rank=1, saving=True),
        Enter(round=3, variables={"RANK": "0"}),
        Over(round=3),
        Over(round=3, cut=True),
        Stop(reason="no, \n and é"),
    ],
)
def test_a_message_is_one_line(message):
    line = to_line(message)
    assert line.count(b"\n") == 1
    assert from_line(line) == message


@pytest.mark.parametrize(
    "line", [b"", b"x\n", b"[]\n", b"{}\n", b'{"waits": {}}\n', b'{"else": {}}\n', b'{"over": 3}\n', b"[" * 9999]
)
def test_a_line_that_is_no_message_is_named(line):
    with pytest.raises(ValueError, match="is no message between an agent and its processes"):
        from_line(line)


def test_a_process_that_opts_in_is_given_its_place_in_the_round_in_use(living, process):
    living.started("a", 1)
    living.enter(4, {0: {"RANK": "2"}})
    assert not living.have_opted_in()
    one = process()
    one.waits(0)
    assert one.hears() == Enter(round=4, variables={"RANK": "2"})
    assert living.have_opted_in()
    assert not living.wait()


def test_all_processes_of_the_pod_have_to_opt_in_and_to_wait(living, process):
    living.started("a", 2)
    living.enter(1, {0: {"RANK": "0"}, 1: {"RANK": "1"}})
    one, other = process(), process(local_rank=1)
    one.waits(0)
    one.hears()
    assert not living.have_opted_in()
    other.waits(0)
    other.hears()
    one.waits(1)
    wait_until("one of two to wait", living.some_wait)
    assert not living.wait()
    other.waits(1)
    wait_until("both to wait", living.wait)
    living.enter(2, {0: {"RANK": "1"}, 1: {"RANK": "0"}})
    assert (one.hears(), other.hears()) == (
        Enter(round=2, variables={"RANK": "1"}),
        Enter(round=2, variables={"RANK": "0"}),
    )
    assert not living.some_wait()


def test_what_a_process_does_that_does_not_wait(living, process):
    living.started("a", 2)
    living.enter(1, {0: {"RANK": "0"}, 1: {"RANK": "1"}})
    one, other = process(), process(local_rank=1)
    for each in (one, other):
        each.waits(0)
        each.hears()
    assert living.busy() == [False, False]
    other.waits(1)
    one.saves(True)
    wait_until("one to save, and one to wait", lambda: living.busy() == [True])
    one.saves(False)
    wait_until("the save to end", lambda: living.busy() == [False])
    one.saves(True)
    wait_until("another save", lambda: living.busy() == [True])
    living.started("b", 2)
    assert living.busy() == []


def test_processes_in_no_round_wait_until_there_is_one(living, process):
    living.started("a", 1)
    one = process()
    one.waits(0)
    wait_until("it to wait", living.wait)
    living.enter(7, {0: {"RANK": "3"}})
    assert one.hears() == Enter(round=7, variables={"RANK": "3"})


def test_a_process_that_opts_in_after_its_round_is_told_that_it_is_over(living, process):
    living.started("a", 1)
    living.enter(1, {0: {"RANK": "0"}})
    living.over(1)
    one = process()
    one.waits(0)
    assert [one.hears(), one.hears()] == [Enter(round=1, variables={"RANK": "0"}), Over(round=1)]


def test_a_process_that_opts_in_after_its_round_was_cut_is_told_so(living, process):
    living.started("a", 1)
    living.enter(1, {0: {"RANK": "0"}})
    living.over(1)
    living.over(1, cut=True)
    one = process()
    one.waits(0)
    assert [one.hears(), one.hears()] == [Enter(round=1, variables={"RANK": "0"}), Over(round=1, cut=True)]
    one.waits(1)
    wait_until("it to wait", living.wait)
    living.enter(2, {0: {"RANK": "0"}})
    living.over(2)
    assert [one.hears(), one.hears()] == [Enter(round=2, variables={"RANK": "0"}), Over(round=2)]


@pytest.mark.parametrize("stranger", [{"start": "older"}, {"local_rank": 1}, {"local_rank": -1}])
def test_a_process_of_another_start_is_not_heard(living, process, stranger):
    living.started("a", 1)
    one = process(**stranger)
    one.waits(0)
    assert next(one.messages, None) is None
    assert not living.have_opted_in()


def test_only_processes_that_wait_are_stopped(living, process):
    living.started("a", 2)
    living.enter(1, {0: {"RANK": "0"}, 1: {"RANK": "1"}})
    one, other = process(), process(local_rank=1)
    for each in (one, other):
        each.waits(0)
        each.hears()
    one.waits(1)
    wait_until("one to wait", living.some_wait)
    living.stop("why")
    assert one.hears() == Stop(reason="why")
    living.over(1)
    assert other.hears() == Over(round=1)


def test_new_processes_begin_anew(living, process):
    living.started("a", 1)
    process().waits(0)
    wait_until("it to wait", living.wait)
    living.started("b", 1)
    assert not living.have_opted_in()


def test_the_end_of_the_agent_is_seen(living, process):
    import os

    folder = os.path.dirname(from_variable(living.variables[SOCKET])[1])
    living.close()
    living.close()
    assert not os.path.exists(folder)
