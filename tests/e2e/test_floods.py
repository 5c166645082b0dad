# SPDX-License-Identifier: Apache-2.0
"""The ports that every pod reaches, flooded from a pod without any right: nothing restarts, and the round stands.

The containers have the limits of memory that they always have.
"""

import textwrap
import time
from collections.abc import Iterator

import pytest

from e2e.job import IMAGE, SIDECAR, Job, restarts
from e2e.kube import Namespace, Object
from e2e.operator import CONTAINER, holder, leader
from e2e.scene import new_namespace
from elasticjob.reading import Pod
from support.waiting import settled

pytestmark = [pytest.mark.disruptive, pytest.mark.real, pytest.mark.extended]

TUNNEL, HEALTH, OPERATOR_HEALTH = 27601, 27602, 8080
SECONDS, A_SECOND, HELD = 10, 500, 1500  # two probes for readiness fall into it
SIDECAR_MIB = 256  # half of its limit; docs/security.md has the parts

# run in the flooder: so many new connections a second, of which the newest stay open; says how many it made
FLOOD = textwrap.dedent("""
    import collections, socket, sys, time
    host, port, says, seconds, a_second, most = *sys.argv[1:4], *map(int, sys.argv[4:])
    said = {"nothing": b"", "tls": b"\\x16\\x03\\x01\\x0f\\xf0" + b"x" * 4000,
            "headers": b"GET /healthz HTTP/1.1\\r\\n" + (b"X: " + b"x" * 8000 + b"\\r\\n") * 100}[says]
    held, made, began = collections.deque(), 0, time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        time.sleep(max(0.0, began + made / a_second - now))
        made += 1
        try:
            caller = socket.create_connection((host, int(port)), timeout=2)
            held.append(caller)
            caller.setblocking(False)
            caller.send(said)
        except OSError:
            pass
        if len(held) > most:
            held.popleft().close()
    print(made)
""")


@pytest.fixture(scope="module")
def elsewhere(operator: Namespace) -> Iterator[Namespace]:
    """Another namespace, with the pod `flooder` that has no right and does nothing by itself."""
    container = {"name": "flooder", "image": IMAGE, "command": ["sleep", "infinity"]}
    spec = {"containers": [container], "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}
    with new_namespace("flooder") as namespace:
        namespace.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "flooder"}, "spec": spec})
        namespace.kubectl("wait", "pod/flooder", "--for=condition=Ready", "--timeout=150s")
        yield namespace


def flood(elsewhere: Namespace, pod: Object, port: int, says: str) -> None:
    numbers = [str(number) for number in (SECONDS, A_SECOND, HELD)]
    program = ["python3", "-c", FLOOD, pod["status"]["podIP"], str(port), says, *numbers]
    made = int(elsewhere.kubectl("exec", "flooder", "--", *program))
    assert made > SECONDS * A_SECOND / 10, "the flood was a trickle"


def peak_mib(job: Job, pod: Object) -> int:
    """The most memory that the pod's sidecar has ever had."""
    command = ["exec", pod["metadata"]["name"], "--container", SIDECAR, "--", "cat", "/proc/1/status"]
    said = dict(line.split(":", 1) for line in job.namespace.kubectl(*command).splitlines())
    return int(said["VmHWM"].split()[0]) >> 10


@pytest.mark.parametrize(
    ("port", "says"), [(TUNNEL, "nothing"), (TUNNEL, "tls"), (HEALTH, "headers")], ids=["silence", "tls", "headers"]
)
def test_a_flooded_sidecar_keeps_its_round(module_job: Job, elsewhere: Namespace, port: int, says: str) -> None:
    zero, began = module_job.member_pods()[0], time.monotonic()
    before = module_job.wait_for_training(2)
    flood(elsewhere, zero, port, says)
    module_job.wait_for_steps(before, int(SECONDS) + 3)
    assert [one.number for one in module_job.rounds()] == [1]
    assert restarts(module_job.member_pods()[0], SIDECAR) == restarts(zero, SIDECAR)
    seen = module_job.pod_states.of(zero["metadata"]["name"])
    assert all(Pod.read(one.body).is_ready for one in seen if one.at > began), "a probe failed"
    assert peak_mib(module_job, zero) <= SIDECAR_MIB


def test_a_flooded_operator_goes_on_leading(module_job: Job, operator: Namespace, elsewhere: Namespace) -> None:
    leading = leader(operator)
    flood(elsewhere, leading, OPERATOR_HEALTH, "headers")
    now = settled(operator.get("pod", leading["metadata"]["name"]), "the kubelet has probed it meanwhile")
    assert holder(operator) == leading["metadata"]["name"]
    assert restarts(now, CONTAINER) == restarts(leading, CONTAINER)
    assert Pod.read(now).is_ready
    module_job.scale(1)
    module_job.wait_for_round(1, after=module_job.rounds()[-1])
