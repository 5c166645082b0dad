# SPDX-License-Identifier: Apache-2.0
"""`support.ControlPlane`: a real API server that comes and goes with its test."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support import ControlPlane, ControlPlaneError
from support.waiting import run, wait_until

SERVICE_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def test_kubectl_works_with_its_kubeconfig(control_plane: ControlPlane) -> None:
    command = ["kubectl", "--kubeconfig", str(control_plane.kubeconfig), "get", "namespaces", "-o", "name"]
    found = run(command, check=True)
    assert "namespace/default" in found.stdout.split()


def test_secrets_are_for_their_owner_only(control_plane: ControlPlane) -> None:
    directory = control_plane.kubeconfig.parent
    assert directory.stat().st_mode & 0o077 == 0
    assert control_plane.kubeconfig.stat().st_mode & 0o077 == 0


def test_signs_service_account_tokens(control_plane: ControlPlane) -> None:
    control_plane.request("POST", SERVICE_ACCOUNTS, {"metadata": {"name": "signed"}})
    request = {"spec": {"expirationSeconds": 600}}
    token = control_plane.request("POST", f"{SERVICE_ACCOUNTS}/signed/token", request)["status"]["token"]

    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = control_plane.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]

    assert status["user"]["username"] == "system:serviceaccount:default:signed"


def test_serves_crds_once_they_are_installed(with_crds: ControlPlane) -> None:
    assert with_crds.request("GET", "/apis/elasticjob.io/v1alpha1/namespaces/none/elasticjobs")["items"] == []


def test_refusal_is_shown_with_the_servers_words(control_plane: ControlPlane) -> None:
    with pytest.raises(ControlPlaneError, match=r'GET /api/v1/namespaces/none was refused with 404: .*"none"'):
        control_plane.request("GET", "/api/v1/namespaces/none")


@pytest.mark.skipif(sys.platform != "linux", reason="only there does every 127.* address exist")
def test_listens_at_no_other_address(control_plane: ControlPlane) -> None:
    port = urlsplit(control_plane.server).port
    assert port is not None
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)


def test_stops_and_starts_again_empty() -> None:
    plane = ControlPlane()
    with plane:
        first = plane.kubeconfig
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "of-the-first"}})
        with pytest.raises(ControlPlaneError, match="runs already"):
            plane.start()
    assert not first.parent.exists()
    plane.stop()  # once more does nothing
    with pytest.raises(ControlPlaneError, match=r"call start\(\)"):
        _ = plane.kubeconfig
    with plane:
        names = [item["metadata"]["name"] for item in plane.request("GET", "/api/v1/namespaces")["items"]]
    assert "default" in names
    assert "of-the-first" not in names


PARENT = """
from support import ControlPlane
plane = ControlPlane()
plane.start()
print(*(program.pid for program in plane._programs), flush=True)
input()
"""


def test_programs_die_with_a_killed_parent() -> None:
    command, environment = [sys.executable, "-c", PARENT], os.environ | {"PYTHONPATH": ":".join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    parent = subprocess.Popen(command, env=environment, text=True, **pipes)
    with parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.send_signal(signal.SIGKILL)
    wait_until("the end of the programs, as their parent has ended", lambda: not any(map(lives, pids)), pause=0.05)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or ") Z " not in stat.read_text()
