# SPDX-License-Identifier: Apache-2.0
"""Who the API server says has written an object: metadata.managedFields, as audit logs and `kubectl` show it."""

from pathlib import Path

from click.testing import CliRunner

from api import chart
from api.operators import GROUP, JOBS, Operators, new_job
from api.pods import CORE, pod_client
from elasticjob_cli.app import cli
from elasticjob_sidecar.api_server.identity import Identity
from support import ControlPlane
from support.pod_life import new_credentials


def owners(plane: ControlPlane, path: str) -> set[tuple[str, str]]:
    """Each owner of fields and the subresource by which it has written them."""
    fields = plane.request("GET", path)["metadata"]["managedFields"]
    return {(one["manager"], one.get("subresource", "")) for one in fields}


async def test_what_the_operator_writes_is_its_own(operators: Operators, plane: ControlPlane) -> None:
    name = new_job(plane)
    leader = await operators.lead()
    for _ in range(3):
        await leader.look(name)
    assert ("elasticjob-operator", "status") in owners(plane, f"{JOBS}/{name}")
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    made = [f"{CORE}/pods/{name}-0-0", f"{CORE}/serviceaccounts/{name}-worker", f"{rbac}/roles/{name}-worker"]
    assert [owners(plane, path) for path in made] == [{("elasticjob-operator", "")}] * 3


async def test_what_a_sidecar_writes_is_its_own(operators: Operators, plane: ControlPlane, tmp_path: Path) -> None:
    chart.install(plane, "ClusterRole")
    name = new_job(plane)
    leader = await operators.lead()
    for _ in range(3):
        await leader.look(name)
    pod = plane.request("GET", f"{CORE}/pods/{name}-0-0")
    kube = pod_client(plane, name, pod, tmp_path)
    me = Identity(
        pod_name=f"{name}-0-0",
        pod_uid=pod["metadata"]["uid"],
        job=name,
        index=0,
        id="1.0",
        certificate=new_credentials().certificate,
        address="10.0.0.1:27601",
    )
    try:
        await kube.create_worker(me.created(None))
        await kube.patch_worker_status(f"{name}-0-0", {"status": {"heartbeat": 1}})
    finally:
        await kube.close()
    path = f"{GROUP}/namespaces/default/elasticworkers/{name}-0-0"
    assert owners(plane, path) == {("elasticjob-sidecar", ""), ("elasticjob-sidecar", "status")}


def test_what_the_command_line_tool_writes_is_its_own(plane: ControlPlane) -> None:
    name = new_job(plane)
    done = CliRunner().invoke(cli, ["suspend", f"--kubeconfig={plane.kubeconfig}", "--no-wait", name])
    assert ("elasticjob-cli", "") in owners(plane, f"{JOBS}/{name}"), done.output
