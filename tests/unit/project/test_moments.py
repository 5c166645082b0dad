# SPDX-License-Identifier: Apache-2.0
"""No test of the cluster asserts something about a moment; `support.moments` finds those that do."""

from pathlib import Path

import pytest

from support.doc_pages import ROOT
from support.moments import moments

FILES = sorted(file for folder in ("e2e", "plane") for file in (ROOT / "tests" / folder).rglob("*.py"))

BAD = {
    "another view than was waited for": """
        def test(job):
            wait_until("why", lambda: sentence in why(job), 30)
            assert sentence in job.condition("Rendezvoused")["message"]
    """,
    "a field of the status": """
        def test(job):
            job.wait_for_training(4)
            assert (job.status.get("reason", ""), job.restarts) == ("", 0)
    """,
    "another object": """
        def test(job):
            job.wait_for_condition("Complete")
            assert [pod["status"]["phase"] for pod in job.pods().values()] == ["Succeeded"]
    """,
    "what a function reads": """
        def reasons(job):
            return {event["reason"] for event in job.namespace.list("events")}

        def test(job):
            job.wait_for_round(2)
            assert "NodeDraining" in reasons(job)
    """,
    "what a function reads for another": """
        def workloads(job):
            return job.namespace.list("workloads")

        def admitted(job):
            held = 0
            for one in workloads(job):
                held += len(one)
            return held

        def test(job):
            job.wait_for_training(3)
            assert admitted(job) == 4
    """,
    "one answer of the API server": """
        def test(namespace):
            namespace.apply(manifest("train"))
            assert namespace.get("elasticjob", "train")["status"]["phase"] == "Running"
    """,
    "a read that has a name": """
        def test(job):
            job.wait_for_round(2)
            answer = why(job.scene())
            assert answer.full
    """,
}
GOOD = {
    "what a wait gives": """
        def test(job):
            assert job.wait_for_round(2).members == (0, 1)
            failed = job.wait_for_condition("Failed")
            assert failed["reason"] == "Failed"
    """,
    "the wait itself": """
        def named(job):
            return job.condition("Rendezvoused")["message"]

        def test(job):
            seen = wait_until("the node to be named", lambda: named(job), 30)
            assert seen.startswith("node")
            again = job.until("the node to be named again", lambda: named(job), 30)
            assert again.startswith("node")
    """,
    "what was recorded": """
        def test(job):
            assert job.rounds() == [first]
            assert job.restarts == 0
    """,
    "what is final": """
        def test(job):
            job.wait_for_condition("Complete")
            assert settled(job.status["phase"], "written with the condition") == "Complete"
    """,
    "an answer's status": """
        def test(caller):
            answer = caller.create(record)
            assert answer.status == 403
    """,
}


def found(source: str) -> list[str]:
    return [text for _, text in moments("\n".join(line[8:] for line in source.splitlines()))]


@pytest.mark.parametrize("source", BAD.values(), ids=BAD)
def test_an_assertion_about_a_moment_is_found(source: str) -> None:
    assert len(found(source)) == 1


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD)
def test_what_is_final_may_be_asserted(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_tests_of_the_cluster_assert_nothing_about_a_moment(file: Path) -> None:
    remedy = "wait for all of the claim, assert on what the wait gives, or say by `settled` why it is final"
    assert [f"{file.name}:{line}: {text}" for line, text in moments(file.read_text())] == [], remedy
