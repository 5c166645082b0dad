# SPDX-License-Identifier: Apache-2.0
"""From where a watch goes on, whatever became of the last."""

from typing import Any

import pytest

from elasticjob.kube.errors import ApiError, Busy, Conflict, Gone, Unavailable
from elasticjob.kube.watch import ListAndWatch


def event(kind: str, version: str = "8") -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"resourceVersion": version}}}


@pytest.fixture
def at() -> ListAndWatch:
    found = ListAndWatch()
    assert found.version == ""
    found.listed("7")
    return found


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_a_change_is_passed_on_and_the_next_watch_begins_there(at: ListAndWatch, kind: str) -> None:
    assert at.take(event(kind))
    assert at.version == "8"


def test_a_bookmark_is_where_the_next_watch_begins_and_no_more(at: ListAndWatch) -> None:
    assert not at.take(event("BOOKMARK"))
    assert at.version == "8"


def test_an_event_that_is_not_known_changes_nothing(at: ListAndWatch) -> None:
    assert not at.take({"type": "NEWS", "object": {}})
    assert at.version == "7"


@pytest.mark.parametrize(("code", "kind"), [(410, Gone), (500, Unavailable), (429, Busy)])
def test_after_an_error_in_the_watch_a_listing_comes(at: ListAndWatch, code: int, kind: type[ApiError]) -> None:
    with pytest.raises(ApiError, match=f"^the API server answered {code}: too old$") as raised:
        at.take({"type": "ERROR", "object": {"code": code, "message": "too old"}})
    assert (type(raised.value), raised.value.status, at.version) == (kind, code, "")


def test_an_error_without_a_code_is_one_of_the_server(at: ListAndWatch) -> None:
    with pytest.raises(Unavailable):
        at.take({"type": "ERROR", "object": {}})
    assert at.version == ""


@pytest.mark.parametrize(
    ("error", "version"), [(Gone("", 410), ""), (Busy("", 503), "7"), (Unavailable(""), "7"), (Conflict("", 409), "7")]
)
def test_of_a_refused_request_only_410_asks_for_a_listing(at: ListAndWatch, error: ApiError, version: str) -> None:
    at.failed(error)
    assert at.version == version


def test_after_a_silence_a_listing_comes(at: ListAndWatch) -> None:
    at.fell_silent()
    assert at.version == ""
