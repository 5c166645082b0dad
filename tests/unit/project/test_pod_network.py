# SPDX-License-Identifier: Apache-2.0
"""The pod network of a local cluster whose images are built here: addresses and routes in each family that it has."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.waiting import run

SCRIPT = Path(__file__).parents[3] / "hack/cluster/node-image/pod-network.sh"
# the script goes on for ever: its pause between two watches ends it
PROGRAMS = {
    "kubectl": 'cat "$NODES"',
    "timeout": 'shift; exec "$@"',
    "ip": 'echo "$@" >> "$ROUTES"',
    "sleep": "kill $PPID",
}
NODES = {
    "ipv4": ("one|10.244.0.0/24|172.18.0.2", "two|10.244.1.0/24|172.18.0.3"),
    "ipv6": ("one|fd00:10:244::/64|fc00::2", "two|fd00:10:244:1::/64|fc00::3"),
    "dual": (
        "one|10.244.0.0/24 fd00:10:244::/64|172.18.0.2 fc00::2",
        "two|10.244.1.0/24 fd00:10:244:1::/64|172.18.0.3 fc00::3",
    ),
}
SUBNETS = {"ipv4": ["10.244.0.0/24"], "ipv6": ["fd00:10:244::/64"]}
DEFAULTS = {"ipv4": ["0.0.0.0/0"], "ipv6": ["::/0"]}
ROUTES = {
    "ipv4": ["route replace 10.244.1.0/24 via 172.18.0.3"],
    "ipv6": ["route replace fd00:10:244:1::/64 via fc00::3"],
}


def configured(folder: Path, *nodes: str) -> tuple[Any, list[str]]:
    """The addresses that node `one` gives to its pods, and the routes that it makes."""
    (folder / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "nodes").write_text("".join(f"{node}\n" for node in nodes))
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "NODE_NAME": "one",
        "NODES": str(folder / "nodes"),
        "ROUTES": str(folder / "routes"),
    }
    run(["bash", str(SCRIPT), str(folder)], env=environment, check=False)
    routes = (folder / "routes").read_text().splitlines()
    return json.loads((folder / "10-pod-network.conflist").read_text())["plugins"][0]["ipam"], routes


@pytest.mark.parametrize("family", NODES)
def test_pods_have_an_address_and_a_way_out_in_each_family(family: str, tmp_path: Path) -> None:
    families = ["ipv4", "ipv6"] if family == "dual" else [family]
    addresses, routes = configured(tmp_path, *NODES[family])
    assert addresses["ranges"] == [[{"subnet": subnet}] for one in families for subnet in SUBNETS[one]]
    assert addresses["routes"] == [{"dst": to} for one in families for to in DEFAULTS[one]]
    assert routes == [route for one in families for route in ROUTES[one]]


def test_a_node_without_addresses_yet_is_left_for_later(tmp_path: Path) -> None:
    _, routes = configured(tmp_path, NODES["ipv4"][0], "two|10.244.1.0/24|", "two||172.18.0.3", NODES["ipv4"][1])
    assert routes == ROUTES["ipv4"]
