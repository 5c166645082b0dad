# SPDX-License-Identifier: Apache-2.0
"""hack/cluster/env.sh serves scripts and people: it does not change the shell of who sources it."""

import os
from pathlib import Path

import pytest

from support.waiting import run

ROOT = Path(__file__).parents[4]
ENV = ROOT / "hack/cluster/env.sh"
SCRIPTS = [path for path in sorted((ROOT / "hack").rglob("*.sh")) if 'env.sh"\n' in path.read_text()]


def bash(script: str, cache: Path) -> str:
    environment = os.environ | {"ELASTICJOB_CACHE": str(cache)}
    done = run(["bash", "-c", script], env=environment, check=True)
    return done.stdout


def test_a_shell_that_sources_it_keeps_its_options(tmp_path: Path) -> None:
    before, after = bash(f'set +o; shopt; echo ===; source "{ENV}"; set +o; shopt', tmp_path).split("===\n")
    assert after == before


def test_it_tells_where_the_cluster_is(tmp_path: Path) -> None:
    assert bash(f'source "{ENV}"; echo "$KUBECONFIG"', tmp_path) == f"{tmp_path}/kubeconfig\n"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("FAMILY=", ""),
        ("FAMILY=ipv4", ""),
        ("FAMILY=ipv6", "-ipv6"),
        ("KUBERNETES=v1.30.14", "-v1-30-14"),
        ("FAMILY=dual KUBERNETES=v1.30.14", "-dual-v1-30-14"),
    ],
)
def test_another_cluster_has_names_and_files_of_its_own(given: str, name: str, tmp_path: Path) -> None:
    asks = f'source "{ENV}"; echo "$cluster $KUBECONFIG $checkpoint_dir"'
    told = bash(f"unset KUBERNETES FAMILY; export {given}; {asks}", tmp_path)
    assert told == f"elasticjob{name} {tmp_path}/kubeconfig{name} {tmp_path}/checkpoints{name}\n"


@pytest.mark.parametrize(
    ("version", "has"),
    [("", False), ("v1.30.14", False), ("v1.35.9", False), ("v1.36.0", True), ("v1.40.0-rc.1", True)],
)
def test_nodes_of_newer_releases_have_containerd_2(version: str, has: bool, tmp_path: Path) -> None:
    asks = f'source "{ENV}"; if has_containerd_2; then echo True; else echo False; fi'
    assert bash(f"export KUBERNETES={version}; {asks}", tmp_path) == f"{has}\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_that_sources_it_stops_at_its_first_error(path: Path) -> None:
    before, _, _ = path.read_text().partition('env.sh"\n')
    assert "\nset -euo pipefail\n" in before


def test_there_are_such_scripts() -> None:
    assert SCRIPTS
