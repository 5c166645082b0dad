# SPDX-License-Identifier: Apache-2.0
"""What other pods can reach of a worker's sidecar: its tunnel, and no store and no trainer API through it."""

import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.job import TRAINER, Job
from support.waiting import settled

pytestmark = pytest.mark.real

STORE, TRAINER_API, TUNNEL = 27400, 27600, 27601

# run in another pod: connects, says a word in plain TCP or TLS without a certificate, and prints what comes back
CALLER = textwrap.dedent("""
    import socket, ssl, sys
    host, port, how, name = sys.argv[1:]
    try:
        caller = socket.create_connection((host, int(port)), timeout=10)
        if how == "tls":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            caller = context.wrap_socket(caller, server_hostname=name)
        else:
            caller.sendall(b"GET /v1/rendezvous HTTP/1.1\\r\\nHost: sidecar\\r\\n\\r\\n")
        print(caller.recv(100) or "closed")
    except (ConnectionError, ssl.SSLError) as error:
        print(type(error).__name__)
""")
CLOSED = {"closed", "ConnectionResetError", "SSLError", "SSLEOFError", "SSLZeroReturnError"}


def call(job: Job, port: int, how: str = "plain") -> str:
    """From the pod of rank 1 to the pod of rank 0."""
    zero, one = job.member_pods()
    number = settled(job.rendezvous["round"], "nothing changes this job")
    name = f"round-{number}.{job.uid}.elasticjob"
    caller = ["python3", "-c", CALLER, zero["status"]["podIP"], str(port), how, name]
    return job.namespace.kubectl("exec", one["metadata"]["name"], "--container", TRAINER, "--", *caller).strip()


@pytest.mark.parametrize("port", [STORE, TRAINER_API])
def test_the_store_and_the_trainer_api_listen_on_loopback_only(module_job: Job, port: int) -> None:
    assert call(module_job, port) == "ConnectionRefusedError"


@pytest.mark.parametrize("how", ["plain", "tls"])
def test_the_tunnel_lets_nobody_in_without_a_members_certificate(module_job: Job, how: str) -> None:
    assert call(module_job, TUNNEL, how) in CLOSED


def test_a_round_trains_through_the_tunnel(module_job: Job) -> None:
    module_job.wait_for_steps(module_job.wait_for_training(2), 3)


SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 27401))
server.settimeout(60)
server.accept()[0].sendall(b"a side store")
"""
CLIENT = """
import contextlib, socket, time
said, end = b"", time.monotonic() + 60
while not said and time.monotonic() < end:
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", 27401), 10) as caller:
        said = caller.recv(100)
print(said.decode())
"""


def test_the_port_after_the_stores_leads_to_rank_0s_pod(module_job: Job) -> None:
    zero, one = (pod["metadata"]["name"] for pod in module_job.member_pods())

    def run(pod: str, code: str) -> str:
        return module_job.namespace.kubectl("exec", pod, "--container", TRAINER, "--", "python3", "-c", code).strip()

    with ThreadPoolExecutor(1) as background:
        served = background.submit(run, zero, SERVER)
        assert run(one, CLIENT) == "a side store"
        served.result()
