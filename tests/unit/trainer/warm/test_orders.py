"""What agent and parked process say to each other, and when a parked one may stand for an ordinary start."""

import pytest

from elasticjob_torch.warm.orders import EVERY, decode, doubt, encode, merged, unforeseen

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
    assert doubt(STARTED, STARTED, ordered, {}) is not None


def test_an_import_that_read_what_has_changed_is_to_blame():
    ordered = {**STARTED, "RANK": "2"}
    assert doubt(STARTED, STARTED, ordered, {"RANK": "lightning", "HOME": "torch"}) == (
        "lightning",
        "lightning reads RANK",
    )
    assert doubt(STARTED, STARTED, ordered, {"LOCAL_RANK": "lightning"}) is None


def test_whoever_lists_the_variables_sees_which_there_are():
    reads = {EVERY: "decouple"}
    assert doubt(STARTED, STARTED, {**STARTED, "RANK": "2"}, reads) is None
    assert doubt(STARTED, STARTED, {**STARTED, "WORLD_SIZE": "2"}, reads) == (
        "decouple",
        "decouple reads the whole environment",
    )


def test_what_an_import_sets_is_its_own_unless_it_is_ordered_too():
    now = {**STARTED, "KMP_INIT_AT_FORK": "FALSE", "RANK": "0"}
    assert doubt(STARTED, now, STARTED, {}) is None
    assert doubt(STARTED, now, {**STARTED, "RANK": "2"}, {}) == ("", "an import has set RANK")


def test_the_order_of_imports_is_kept():
    assert merged(["torch", "sklearn"], ["json", "torch", "torch._dynamo"], ["json"]) == [
        "torch",
        "sklearn",
        "torch._dynamo",
    ]
