# SPDX-License-Identifier: Apache-2.0
"""One tree of errors: what an answer becomes, and in which words."""

import json
from typing import Any

import pytest

from elasticjob.kube import errors
from elasticjob.kube.errors import error_of


def answer(message: str, **more: Any) -> bytes:
    return json.dumps({"kind": "Status", "message": message, **more}).encode()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, errors.Unavailable),
        (400, errors.Invalid),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, errors.Denied),
        (409, errors.Conflict),
        (410, errors.Gone),
        (422, errors.Invalid),
        (429, errors.Busy),
        (500, errors.Unavailable),
        (502, errors.Unavailable),
        (503, errors.Busy),
        (504, errors.Busy),
    ],
)
def test_the_kind_follows_the_status(status: int, kind: type[errors.ApiError]) -> None:
    error = error_of(status, answer("for a reason"), with_status=True)
    assert (type(error), str(error), error.status) == (kind, f"the API server answered {status}: for a reason", status)


def test_a_namespace_that_is_being_deleted_is_told_from_other_refusals() -> None:
    details = {"causes": [{"reason": "NamespaceTerminating"}]}
    assert type(error_of(403, answer("no", details=details))) is errors.Terminating
    assert type(error_of(403, answer("NamespaceTerminating"))) is errors.Forbidden


def test_an_object_that_another_has_replaced_is_a_conflict() -> None:
    causes = [{"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}]
    assert type(error_of(422, answer("no", details={"causes": causes}))) is errors.Conflict
    causes[0]["field"] = "spec.nodeName"
    assert type(error_of(422, answer("no", details={"causes": causes}))) is errors.Invalid


@pytest.mark.parametrize("body", [b'{"message": "a\\u001b[31mb\\nc"}', b"a\x1b[31mb\nc"])
def test_what_a_terminal_obeys_is_taken_out(body: bytes) -> None:
    assert str(error_of(500, body)) == "ab c"


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"details": 3}', b"\xff", b"{"])
def test_an_answer_of_another_shape_is_an_error_all_the_same(body: bytes) -> None:
    assert type(error_of(500, body)) is errors.Unavailable


@pytest.mark.parametrize("with_status", [False, True])
def test_an_answer_without_words_has_its_status(with_status: bool) -> None:
    assert str(error_of(502, b"", with_status=with_status)) == "the API server answered 502"


def test_of_a_page_that_a_proxy_sends_only_the_beginning_is_told() -> None:
    assert str(error_of(502, b"x" * 10_000)) == "x" * 256
