# SPDX-License-Identifier: Apache-2.0
"""What the API server is told of who asks."""

import tomllib
from pathlib import Path

from elasticjob.kube.names import field_manager, user_agent

ROOT = Path(__file__).parents[4]


def test_the_user_agent_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert user_agent("operator") == f"elasticjob-operator/{project['version']}"


def test_an_upgrade_changes_no_owner_of_fields() -> None:
    assert field_manager("cli") == "elasticjob-cli"
