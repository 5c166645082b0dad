"""How long a call to the API server may take, in virtual time."""

import http.client
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticjob_torch.kubernetes import api as api_module


class Dripping:
    """An answer whose body comes in pieces, one a second, and no piece later than the socket allows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
        self.now = 0.0
        self.left = pieces
        monkeypatch.setattr(api_module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def read1(self, size: int) -> bytes:
        self.now += 1
        self.left -= 1
        return b"x" if self.left >= 0 else b""

    def read(self) -> bytes:
        return b""


def body(dripping: Dripping) -> bytes:
    return api_module._payload(cast("http.client.HTTPResponse", cast("Any", dripping)))


def test_an_answer_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    dripping = Dripping(monkeypatch, 1000)
    with pytest.raises(TimeoutError, match="had not ended"):
        body(dripping)
    assert dripping.now <= 6


def test_an_answer_in_pieces_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert body(Dripping(monkeypatch, 4)) == b"xxxx"
