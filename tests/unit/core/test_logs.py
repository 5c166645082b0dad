# SPDX-License-Identifier: Apache-2.0
"""Logs as JSON: what a line is about stands in it."""

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

from elasticjob import logs
from support.waiting import run


class Lines(logging.StreamHandler[StringIO]):
    def __init__(self) -> None:
        super().__init__(StringIO())
        self.setFormatter(logs.JsonFormatter())

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


log = logging.getLogger("elasticjob_tested")


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    log.addHandler(handler)
    log.setLevel("INFO")
    yield handler
    log.removeHandler(handler)


def test_a_line_is_one_object_whatever_it_says(lines: Lines) -> None:
    try:
        int("broken\nin two")
    except ValueError:
        log.exception('a "word" and\n%s', "another")
    log.info("lost", extra={"fields": {"worker": 3}})
    first, second = lines.all()
    assert (first["level"], first["logger"], first["message"]) == (
        "error",
        "elasticjob_tested",
        'a "word" and\nanother',
    )
    assert "ValueError: invalid literal" in first["exception"]
    assert first["time"].endswith("+00:00")
    assert (second["message"], second["worker"]) == ("lost", 3)
    assert "job" not in first


async def test_tasks_are_each_about_their_own_job(lines: Lines) -> None:
    async def work(job: str) -> None:
        logs.begin(job=job)
        await asyncio.sleep(0)
        log.info("worked")

    await asyncio.gather(work("ml/a"), work("ml/b"))
    assert sorted(line["job"] for line in lines.all()) == ["ml/a", "ml/b"]


async def test_what_is_noted_later_is_known_to_all_tasks_that_share_it(lines: Lines) -> None:
    noted = asyncio.Event()

    async def log_it() -> None:
        await noted.wait()
        log.info("now")

    async def process() -> None:
        logs.begin(job="ml/a", worker=2)
        task = asyncio.create_task(log_it())
        await asyncio.create_task(see_round())
        noted.set()
        await task

    async def see_round() -> None:
        logs.note(round=7)

    await asyncio.create_task(process())
    (line,) = lines.all()
    assert (line["job"], line["worker"], line["round"]) == ("ml/a", 2, 7)


async def test_without_a_beginning_nothing_is_noted(lines: Lines) -> None:
    logs.note(round=7)
    log.info("plain")
    assert "round" not in lines.all()[0]


@pytest.mark.parametrize("format", logs.FORMATS)
def test_a_process_logs_in_the_format_that_it_was_told(format: str) -> None:
    code = f"from elasticjob import logs; logs.set_up('info', '{format}'); import logging; logging.info('it is %d', 7)"
    said = run([sys.executable, "-c", code], check=True).stderr
    assert said.endswith(" INFO root: it is 7\n") if format == "text" else json.loads(said)["message"] == "it is 7"


def test_no_text_forges_a_line_or_moves_the_terminal() -> None:
    formatter = logs.TextFormatter(logs.TEXT)
    said = "lost\n2026-01-01 00:00:00,000 INFO root: all is well\x1b[2J"
    error = ValueError(said)
    record = log.makeRecord(log.name, logging.ERROR, "", 0, "worker 0: %s", (said,), (type(error), error, None))
    first, *others = formatter.format(record).split("\n")
    assert first.endswith(r"worker 0: lost\n2026-01-01 00:00:00,000 INFO root: all is well\x1b[2J")
    assert others == [r"ValueError: lost", r"  2026-01-01 00:00:00,000 INFO root: all is well\x1b[2J"]
