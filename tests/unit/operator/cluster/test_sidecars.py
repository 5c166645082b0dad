# SPDX-License-Identifier: Apache-2.0
"""What a sidecar answers to the operator: any other answer, and any other server, is none."""

from http import HTTPStatus

import pytest

from elasticjob.api import TROUBLE_PATH
from elasticjob.health import HealthServer, Page, error_page
from elasticjob_operator.cluster import sidecars
from elasticjob_operator.cluster.sidecars import ANSWER_LENGTH, trouble_of
from support.ports import free_port
from support.silent_server import SilentServer


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (Page(b"it cannot be written: \x1b[31mno\nroom"), "it cannot be written: no room"),
        (Page(b""), ""),
        (error_page(HTTPStatus.NOT_FOUND), None),
        (Page(b"x" * 100_000), "x" * (ANSWER_LENGTH - 1) + "…"),
        (Page(b"\xff\xfe"), "��"),
    ],
    ids=["a trouble", "none", "another server", "an endless one", "no text"],
)
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_an_answer_is_one_bounded_line(page: Page, told: str | None, address: str) -> None:
    server = HealthServer({TROUBLE_PATH: lambda: page})
    await server.listen(0)
    try:
        assert await trouble_of(address, server.port) == told
    finally:
        server.close()


async def test_no_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecars, "ANSWER_SECONDS", 0.2)
    assert await trouble_of("127.0.0.1", free_port()) is None
    async with SilentServer() as silent:
        assert await trouble_of("127.0.0.1", silent.port) is None
    async with SilentServer(b"no HTTP at all\r\n\r\n") as other:
        assert await trouble_of("127.0.0.1", other.port) is None
    assert await trouble_of("no address") is None
