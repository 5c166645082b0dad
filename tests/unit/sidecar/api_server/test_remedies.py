# SPDX-License-Identifier: Apache-2.0
"""What keeps a sidecar from the API server: each cause names the object, what to set, and where."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from elasticjob.kube.errors import BY_STATUS, ApiError, Conflict, Unavailable
from elasticjob_sidecar.api_server.client import KubeApi, connected
from elasticjob_sidecar.api_server.in_cluster import InCluster
from elasticjob_sidecar.api_server.remedies import explained
from support.faulty_kube import FaultyKube
from support.records import record_of, running

DAY = timedelta(days=1)
NAMED = 'elasticworkers.elasticjob.io "digits-1-0" is forbidden: '
# by the API server's words, as they come
REFUSALS: dict[str, tuple[int, str, str]] = {
    "quota": (
        403,
        f"{NAMED}exceeded quota: records, requested: count/elasticworkers.elasticjob.io=1, used: "
        "count/elasticworkers.elasticjob.io=1, limited: count/elasticworkers.elasticjob.io=1",
        "raise count/elasticworkers.elasticjob.io in spec.hard of the ResourceQuota records",
    ),
    "quota that is not counted": (
        403,
        f"{NAMED}status unknown for quota: records, resources: count/elasticworkers.elasticjob.io",
        "the controller of quotas has not counted the ResourceQuota records yet, which may take five minutes",
    ),
    "policy": (
        422,
        f"{NAMED}ValidatingAdmissionPolicy 'no-crds' with binding 'all' denied request: not here",
        "let the ValidatingAdmissionPolicy no-crds allow the workers' pods elasticworkers.elasticjob.io",
    ),
    "webhook": (
        403,
        'admission webhook "guard.example.com" denied the request: not here',
        "let the webhook guard.example.com allow elasticworkers.elasticjob.io",
    ),
    "webhook that is away": (
        500,
        'Internal error occurred: failed calling webhook "guard.example.com": connection refused',
        "let the webhook guard.example.com allow elasticworkers.elasticjob.io",
    ),
    "rights": (
        403,
        'elasticworkers.elasticjob.io is forbidden: User "system:serviceaccount:default:job-worker" cannot create '
        'resource "elasticworkers" in API group "elasticjob.io" in the namespace "default"',
        "the Role and the RoleBinding job-worker give system:serviceaccount:default:job-worker the right to create "
        "elasticworkers",
    ),
    "namespace": (
        403,
        f"{NAMED}unable to create new content in namespace default because it is being terminated",
        "the namespace is being deleted",
    ),
    "token": (401, "Unauthorized", "it does not accept the pod's token: see that the clock of its node is right"),
    "no CRD": (
        404,
        "the server could not find the requested resource",
        "see that the CRD elasticworkers.elasticjob.io is there",
    ),
    "another CRD": (
        422,
        'ElasticWorker.elasticjob.io "digits-1-0" is invalid: spec.node: Required value',
        "and that of this version of the operator",
    ),
}


@pytest.mark.looptime
@pytest.mark.parametrize(("status", "words", "remedy"), REFUSALS.values(), ids=REFUSALS)
async def test_each_refusal_of_a_record_is_told_with_its_remedy(status: int, words: str, remedy: str) -> None:
    kube = FaultyKube()
    failure = BY_STATUS.get(status, Unavailable)(f"the API server answered {status}: {words}", status)
    kube.fail["create"] = [failure] * 99
    record = record_of(kube)
    async with running(record):
        await asyncio.sleep(2)
        assert remedy in record.trouble
        assert record.trouble.startswith(f"its ElasticWorker cannot be written: the API server answered {status}: ")
        assert "digits-1-0" not in record.trouble  # so that one cause has one sentence
        kube.fail.clear()
        await record.written()
    assert record.trouble == ""


def test_a_record_that_is_not_kept_as_it_was_written() -> None:
    failure = Conflict("ElasticWorker job-0-0 is not kept as it was written")
    assert "perhaps a webhook: take them out of its rules" in explained(failure, "job")


@pytest.fixture
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[InCluster]:
    """An API server with a certificate of the moments that a test names, whose authority the pod has, or another's."""
    begins, ends, trusted = request.param
    own, other = _authority(tmp_path / "own", begins, ends), _authority(tmp_path / "other", begins, ends)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    token = tmp_path / "token"
    token.write_text("secret")
    yield InCluster("127.0.0.1", listening.sockets[0].getsockname()[1], token, own if trusted else other)
    listening.close()


def _authority(file: Path, begins: timedelta, ends: timedelta) -> Path:
    """Its certificate and key, in one file."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "api")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now + begins, now + ends)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file.write_bytes(pem + key.private_bytes(*formats))
    return file


CLOCK, AUTHORITY = "see that the clock of its node is right", "see that ca.crt in the ConfigMap kube-root-ca.crt"


@pytest.mark.parametrize(
    ("server", "words", "clock"),
    [
        ((DAY, 2 * DAY, True), "certificate is not yet valid", True),
        ((-2 * DAY, -DAY, True), "certificate has expired", True),
        ((-DAY, DAY, False), "self-signed certificate", False),
    ],
    indirect=["server"],
    ids=["the node's clock is behind", "the node's clock is ahead", "another authority"],
)
async def test_a_certificate_that_is_refused(server: InCluster, words: str, *, clock: bool) -> None:
    told = await _failure_of(server)
    assert told.startswith(f"no trusted connection to {server.url}: its certificate is refused: {words}")
    assert (CLOCK in told, AUTHORITY in told) == (clock, True)


async def test_no_connection_names_the_address(tmp_path: Path) -> None:
    authority, token = _authority(tmp_path / "own", -DAY, DAY), tmp_path / "token"
    token.write_text("secret")
    refusing = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = refusing.sockets[0].getsockname()[1]
    refusing.close()
    await refusing.wait_closed()
    told = await _failure_of(InCluster("127.0.0.1", port, token, authority))
    assert told.startswith(f"no connection to the API server at https://127.0.0.1:{port}: ")
    assert "NetworkPolicies (egress)" in told


async def _failure_of(server: InCluster) -> str:
    kube = KubeApi("default", connected(server))
    try:
        with pytest.raises(ApiError) as refused:
            await kube.get_worker("job-0-0")
    finally:
        await kube.close()
    return explained(refused.value, "job")
