# SPDX-License-Identifier: Apache-2.0
"""Metrics, alerts and dashboard as a real Prometheus sees them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.job import Job
from e2e.kube import Namespace, wait_until
from e2e.prometheus import prometheus, promtool

pytestmark = pytest.mark.real

FILES = Path(__file__).parents[2] / "charts" / "elasticjob" / "files"
TRIED = Path(__file__).with_name("alerts.yaml")
# what has a series only after something that this test does not do
RARE = ("sidecar_api_errors", "api_requests_total{code", "refused", "jobs_ended")


def panels() -> list[tuple[str, str]]:
    """The dashboard's queries, as Grafana asks them for all jobs."""
    found = json.loads((FILES / "dashboard.json").read_text())["panels"]
    words = {"$__rate_interval": "30s", "$__range": "1m", "$job_namespace": ".*", "$job_name": ".*"}
    queries = []
    for panel in found:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for word, value in words.items():
                expression = expression.replace(word, value)
            queries.append((panel["title"], expression))
    return queries


def alerts() -> dict[str, str]:
    (group,) = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


@pytest.mark.patient
def test_every_alert_fires(tmp_path: Path) -> None:
    shutil.copy(FILES / "alerts.yaml", tmp_path / "alerts.yaml")
    shutil.copy(TRIED, tmp_path / "tried.yaml")
    assert f"{len(alerts())} rules found" in promtool(tmp_path, "check", "rules", "alerts.yaml")
    promtool(tmp_path, "test", "rules", "tried.yaml")
    tried = [test for case in yaml.safe_load(TRIED.read_text())["tests"] for test in case["alert_rule_test"]]
    assert {test["alertname"] for test in tried if test["exp_alerts"]} == set(alerts())
    assert {test["alertname"] for test in tried if not test["exp_alerts"]} == set(alerts())


def test_every_query_of_dashboard_and_alerts_is_answered(operator: Namespace, job: Job, tmp_path: Path) -> None:
    with prometheus(tmp_path, FILES / "alerts.yaml", job.namespace.name) as found:
        job.apply(replicas=2)
        first = job.wait_for_round(2)
        job.wait_for_training(2)

        def scraped() -> bool:
            targets = found.targets()
            healths = [health for healths in targets.values() for health in healths]
            return len(targets) == 2 and len(targets["workers"]) == 2 and set(healths) == {"up"}

        wait_until("all targets to be up", scraped, 30, found.targets)
        told = 'sum(elasticjob_round_notified_seconds_count{cause="PodDeleted"})'
        before = value_of(found.query(told))
        job.delete_pod(job.pod(1))
        job.wait_for_round(2, after=first)

        def counted() -> bool:
            return value_of(found.query(told)) > before

        wait_until("the loss to be counted", counted, 30, lambda: found.query(told))
        named = f'{{job_namespace="{job.namespace.name}", job_name="{job.name}"}}'
        wait_until(
            "the job's gauge to show the new round",
            lambda: value_of(found.query(f"elasticjob_job_world_size{named}")) == 2,
            30,
        )
        for title, expression in panels():
            answered = wait_until_answered(found, title, expression)
            assert answered or any(word in expression for word in RARE), title
        for name, expression in alerts().items():
            found.query(expression)
            assert name in states(found)
        first_steps = f'sum(elasticjob_sidecar_first_step_seconds_count{{namespace="{job.namespace.name}"}})'

        def all_is_well() -> bool:  # a scrape that takes more than its second leaves a gap
            seen = states(found)
            known = {state for state, _ in seen.values()} <= {"inactive", "pending", "firing"}
            answered = {health for _, health in seen.values()} == {"ok"}  # before the first evaluation it is "unknown"
            silent = seen["ElasticJobNoLeader"][0] == "inactive"
            leaders = value_of(found.query("sum(elasticjob_leader)"))
            return known and answered and silent and leaders == 1 and value_of(found.query(first_steps)) > 0

        wait_until("alerts that can be evaluated, one leader, and first steps", all_is_well, 30, lambda: states(found))


def wait_until_answered(found: Any, title: str, expression: str) -> bool:
    """Whether the query has an answer in time; a rate needs two scrapes."""
    if any(word in expression for word in RARE):
        return bool(found.query(expression))
    wait_until(f"an answer for {title}: {expression}", lambda: found.query(expression), 30)
    return True


def value_of(answer: list[Any]) -> float:
    return float(answer[0]["value"][1]) if answer else 0.0


def states(found: Any) -> dict[str, tuple[str, str]]:
    """Each alert's state and whether its query can be evaluated."""
    (group,) = found.ask("rules")["groups"]
    return {rule["name"]: (rule["state"], rule["health"]) for rule in group["rules"]}
