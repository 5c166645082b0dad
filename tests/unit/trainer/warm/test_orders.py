# SPDX-License-Identifier: Apache-2.0
"""What agent and prestarted process say to each other, and when a prestarted one may stand for an ordinary start."""

import pytest

from elasticjob_torch.warm.orders import EVERY, Read, decode, encode, invalidated, merged, unforeseen

STARTED = {"HOME": "/root", "RANK": "1", "LOCAL_RANK": "0"}


def test_messages_come_whole_however_they_are_cut():
    messages = [{"imports": ["torch"], "rest": 4.0}, {"environment": {"NAME": "caf\udcc3"}, "learn": ""}]
    sent = b"".join(map(encode, messages))
    received, got = b"", []
    for byte in sent:
        found, received = decode(received + bytes([byte]))
        got += found
    assert (got, received) == (messages, b"")


@pytest.mark.parametrize("name", ["RANK", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE"])
def test_what_torch_says_of_a_round_may_differ(name):
    assert unforeseen(STARTED, {**STARTED, name: "another"}) is None


@pytest.mark.parametrize(
    "ordered",
    [{**STARTED, "OMP_NUM_THREADS": "1"}, {**STARTED, "HOME": "/home"}, {"RANK": "1", "LOCAL_RANK": "0"}],
)
def test_anything_else_has_to_be_there_at_the_start(ordered):
    assert unforeseen(STARTED, ordered) in ("OMP_NUM_THREADS", "HOME")
    assert invalidated(STARTED, STARTED, ordered, {})


def read(name, early_import, module=""):
    return Read(early_import, module or early_import, f"{module or early_import} reads {name}")


def test_an_import_that_read_what_has_changed_is_to_blame():
    ordered = {**STARTED, "RANK": "2"}
    lightning, torch = read("RANK", "lightning", "lightning.fabric"), read("HOME", "torch")
    assert invalidated(STARTED, STARTED, ordered, {"RANK": [lightning], "HOME": [torch]}) == [lightning]
    assert invalidated(STARTED, STARTED, ordered, {"LOCAL_RANK": [lightning]}) == []


def test_all_imports_that_read_what_has_changed_are_found_at_once():
    ordered = {**STARTED, "RANK": "2", "MASTER_PORT": "9"}
    first, second, again = read("RANK", "first"), read("RANK", "second"), read("MASTER_PORT", "second")
    assert invalidated(STARTED, STARTED, ordered, {"RANK": [first, second], "MASTER_PORT": [again]}) == [again, first]


def test_whoever_lists_the_variables_sees_which_there_are_and_is_not_to_blame_for_that():
    reads = {EVERY: [Read("decouple", "decouple", "decouple reads the names of all variables")]}
    assert invalidated(STARTED, STARTED, {**STARTED, "RANK": "2"}, reads) == []
    why = "decouple reads the names of all variables, and WORLD_SIZE is there only now, or no more"
    assert invalidated(STARTED, STARTED, {**STARTED, "WORLD_SIZE": "2"}, reads) == [Read("", "", why)]


def test_what_an_import_sets_is_its_own_unless_it_is_ordered_too():
    now = {**STARTED, "KMP_INIT_AT_FORK": "FALSE", "RANK": "0"}
    assert invalidated(STARTED, now, STARTED, {}) == []
    assert invalidated(STARTED, now, {**STARTED, "RANK": "2"}, {}) == [Read("", "", "an import has set RANK")]


def test_the_order_of_imports_is_kept():
    assert merged(["torch", "sklearn", "torch"], ["torch", "torch._dynamo"]) == ["torch", "sklearn", "torch._dynamo"]
