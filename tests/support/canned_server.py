# SPDX-License-Identifier: Apache-2.0
"""An API server over TLS that answers as it is told, and remembers what it was asked."""

import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

ADDRESS = "127.0.0.1"
LOOPBACK = x509.IPAddress(ip_address(ADDRESS))


class Asked(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int


class CannedServer:
    """`answers` are given in turn, then empty lists."""

    def __init__(self) -> None:
        self.answers: list[web.Response] = []
        self.asked: list[Asked] = []
        self.port = 0

    @contextlib.asynccontextmanager
    async def serve(self, secrets: Path) -> AsyncIterator["CannedServer"]:
        """Writes `ca.crt` to `secrets`."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        write_authority(secrets / "ca.crt", secrets / "pair")
        context.load_cert_chain(secrets / "pair")
        runner = web.ServerRunner(web.Server(self._answer))
        await runner.setup()
        await web.TCPSite(runner, ADDRESS, 0, ssl_context=context).start()
        self.port = runner.addresses[0][1]
        yield self
        await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        connection = request.transport.get_extra_info("peername")[1]
        query, headers, body = dict(request.query), dict(request.headers), await request.read()
        self.asked.append(Asked(request.method, request.path, query, headers, body, connection))
        return self.answers.pop(0) if self.answers else web.json_response({"items": []})


def write_authority(authority: Path, pair: Path, name: x509.GeneralName = LOOPBACK) -> None:
    """A new certificate authority's certificate, and a certificate for `name` with its key."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    ours, theirs = (_builder(keys[0], key, name) for key, name in zip(keys, ("authority", "server"), strict=True))
    ours = ours.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    theirs = theirs.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    authority.write_bytes(ours.sign(keys[0], hashes.SHA256()).public_bytes(Encoding.PEM))
    secret = keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pair.write_bytes(theirs.sign(keys[0], hashes.SHA256()).public_bytes(Encoding.PEM) + secret)


def _builder(issuer: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePrivateKey, name: str) -> x509.CertificateBuilder:
    issued_by, subject = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in ("authority", name))
    identifiers = (
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()),
    )
    now, day = datetime.now(UTC), timedelta(days=1)
    builder = x509.CertificateBuilder(issued_by, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - day).not_valid_after(now + day)
    for identifier in identifiers:
        builder = builder.add_extension(identifier, critical=False)
    usage = x509.KeyUsage(True, False, False, False, False, key is issuer, False, False, False)
    return builder.add_extension(usage, critical=True)
