# SPDX-License-Identifier: Apache-2.0
"""An API server on loopback that answers what it is told to, over HTTP or TLS, for clients that block."""

import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DATE = "Sun, 22 Nov 2026 12:00:00 GMT"


class Pinged(NamedTuple):
    method: str
    path: str  # with its query
    headers: Message
    body: bytes


@dataclass
class Stub:
    """`answers`: by path without its query, where a whole number is a status and an event is waited for; anything else
    is a 404. `asked`: what came, in turn."""

    url: str
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[Pinged] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [one.path for one in self.asked]


class Pair(NamedTuple):
    """Files with a certificate that vouches for itself, and its key."""

    certificate: Path
    key: Path


def new_pair(folder: Path, name: str) -> Pair:
    """Of 127.0.0.1 and of the DNS name `name`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName(name)])
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    pair.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form, nothing = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pair.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, nothing))
    return pair


@contextmanager
def stub_api(
    answers: Mapping[str, Any] | None = None, *, pair: Pair | None = None, clients: Path | None = None
) -> Iterator[Stub]:
    """`pair`: by which it speaks TLS; `clients`: a certificate without which it speaks with nobody."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            stub.asked.append(Pinged(self.command, self.path, self.headers, body))
            found = stub.answers.get(urlsplit(self.path).path, 404)
            if isinstance(found, threading.Event):
                found.wait()
                found = 503
            status = found if isinstance(found, int) else 200
            told = {"message": "not found", "code": 404} if isinstance(found, int) else found
            sent = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_response_only(status)
            self.send_header("Date", DATE)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PATCH = answer  # noqa: N815 (http.server's names)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that is refused by TLS is what some tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    if pair:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    stub = Stub(f"http{'s' if pair else ''}://127.0.0.1:{server.server_port}", dict(answers or {}))
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    serving.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
