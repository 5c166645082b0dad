# SPDX-License-Identifier: Apache-2.0
"""One check for each method of `Store`, of a store far from the server and of one near it that sees the same keys."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
import torch
from torch.distributed import DistStoreError, Store

from support.waiting import DEADLINE, result_of

SOON = timedelta(seconds=0.3)


def in_background(run: Callable[[], Any]) -> "Future[Any]":
    """Its `result(DEADLINE)` never hangs, whatever `run` does."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(run())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def arrived(store: Store) -> None:
    """Return when the server has got all that `store` has written: the server answers no write, but this."""
    store.num_keys()


def check_set(far: Store, near: Store) -> None:
    far.set("text", "päper")
    far.set("bytes", b"\x00\xff")
    far.set("text", "paper")
    arrived(far)
    assert (near.get("text"), near.get("bytes")) == (b"paper", b"\x00\xff")


def check_get(far: Store, near: Store) -> None:
    near.set("there", b"\x00\xff")
    assert far.get("there") == b"\x00\xff"
    late = in_background(lambda: far.get("late"))
    near.set("late", "came")
    assert result_of(late) == b"came"


def check_add(far: Store, near: Store) -> None:
    assert (far.add("sum", 5), near.add("sum", 2), far.add("sum", -10), far.add("sum", 0)) == (5, 7, -3, -3)
    assert near.get("sum") == b"-3"


def check_check(far: Store, near: Store) -> None:
    near.set("one", "")
    arrived(near)
    assert far.check(["one"])
    assert not far.check(["one", "two"])
    near.set("two", "")
    arrived(near)
    assert far.check(["one", "two"])


def check_wait(far: Store, near: Store) -> None:
    waits = in_background(lambda: far.wait(["first", "second"]))
    near.set("first", "")
    near.set("second", "")
    result_of(waits)
    far.wait(["first"], SOON)
    with pytest.raises(DistStoreError, match="timeout"):
        far.wait(["first", "never"], SOON)
    assert far.check(["first"])  # the store goes on after a wait in vain


def check_compare_set(far: Store, near: Store) -> None:
    assert far.compare_set("value", "other", "new") == b"other"
    assert not near.check(["value"])
    assert far.compare_set("value", "", "first") == b"first"
    assert far.compare_set("value", "first", b"second") == b"second"
    assert far.compare_set("value", b"first", "third") == b"second"
    assert near.get("value") == b"second"


def check_delete_key(far: Store, near: Store) -> None:
    near.set("gone", "")
    arrived(near)
    assert far.delete_key("gone") is True
    assert far.delete_key("gone") is False
    assert not near.check(["gone"])


def check_num_keys(far: Store, near: Store) -> None:
    before = far.num_keys()
    near.set("one more", "")
    arrived(near)
    assert far.num_keys() == near.num_keys() == before + 1


def check_append(far: Store, near: Store) -> None:
    far.append("list", "one,")
    far.append("list", b"two")
    arrived(far)
    assert near.get("list") == b"one,two"


def check_multi_get(far: Store, near: Store) -> None:
    near.set("a", "1")
    late = in_background(lambda: far.multi_get(["b", "a"]))
    near.set("b", b"\xff")
    assert list(result_of(late)) == [b"\xff", b"1"]


def check_multi_set(far: Store, near: Store) -> None:
    far.multi_set(["a", "b"], ["1", b"\xff"])
    arrived(far)
    assert (near.get("a"), near.get("b")) == (b"1", b"\xff")


def check_has_extended_api(far: Store, near: Store) -> None:
    assert far.has_extended_api() is near.has_extended_api() is True


def check_timeout(far: Store, near: Store) -> None:
    far.set_timeout(SOON)
    assert far.timeout == SOON
    began = time.monotonic()
    with pytest.raises(DistStoreError, match="timeout"):
        far.get("never")
    assert SOON.total_seconds() <= time.monotonic() - began < DEADLINE


def check_queue(far: Store, near: Store) -> None:
    far.queue_push("line", "first")
    arrived(far)
    near.queue_push("line", "second")
    arrived(near)
    assert far.queue_len("line") == near.queue_len("line") == 2
    assert (far.queue_pop("line"), far.queue_pop("line", block=False)) == (b"first", b"second")
    with pytest.raises(torch.distributed.QueueEmptyError):
        far.queue_pop("line", False)
    assert far.queue_len("line") == 0
    late = in_background(lambda: far.queue_pop("line"))
    near.queue_push("line", b"\xff")
    assert result_of(late) == b"\xff"
    far.set_timeout(SOON)
    with pytest.raises(DistStoreError):
        far.queue_pop("line")


def check_list_keys(far: Store, near: Store) -> None:
    far.multi_set(["a", "b/c"], ["", ""])
    arrived(far)
    assert {"a", "b/c"} <= set(far.list_keys())
    assert sorted(far.list_keys()) == sorted(near.list_keys())


def check_clone(far: Store, near: Store) -> None:
    clone = far.clone()
    assert clone.timeout == far.timeout
    blocked = in_background(lambda: far.get("late"))
    clone.set("late", "by the clone")  # a connection of its own
    assert result_of(blocked) == near.get("late") == b"by the clone"


def check_barrier(far: Store, near: Store) -> None:
    with pytest.raises(DistStoreError):
        far.barrier("alone", 2, SOON)
    first = in_background(lambda: far.barrier("meeting", 2))
    near.barrier("meeting", 2, timedelta(seconds=DEADLINE))
    result_of(first)
    far.barrier("meeting", 2, SOON)  # it stays open
    assert far.check(["nothing"]) is False


CHECKS = {name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")}
CHECKS |= dict.fromkeys(["queue_push", "queue_pop", "queue_len"], check_queue)
CHECKS |= dict.fromkeys(["timeout", "set_timeout"], check_timeout)
