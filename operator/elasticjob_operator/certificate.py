# SPDX-License-Identifier: Apache-2.0
"""The certificate of the metrics endpoint: from a mounted Secret, or made at the start.

The latter keeps the traffic confidential but proves no identity. A scraper that checks certificates needs a mounted
one, which is read again when it has changed, for example when cert-manager renews it.
"""

import logging
import os
import ssl
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

NAMES = ("tls.crt", "tls.key")
NOT_BEFORE, NOT_AFTER = datetime(2000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)

log = logging.getLogger(__name__)


class CertificateError(Exception):
    """There is no certificate to serve with. The message, one sentence, says why."""


def contexts(folder: str) -> Callable[[], ssl.SSLContext]:
    """Returns a function that gives the TLS settings for a connection, from the pair in `folder`, or from a self-signed
    certificate if `folder` is empty. Raises CertificateError."""
    if not folder:
        made = _self_signed()
        return lambda: made
    return Mounted(Path(folder)).context


class Mounted:
    """The pair in a folder, in its current version; the previous one while the files do not match."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / name for name in NAMES]
        try:
            self._seen, self._context = self._changed(), _load(*self._files)
        except OSError as error:  # includes ssl.SSLError
            what = f"no usable {' and '.join(NAMES)}: {error}"
            raise CertificateError(f"--metrics-certificate {folder}: {what}") from None

    def context(self) -> ssl.SSLContext:
        try:
            if (changed := self._changed()) != self._seen:
                self._context, self._seen = _load(*self._files), changed
        except OSError as error:
            log.warning("the metrics' certificate has changed and is not usable: %s", error)
        return self._context

    def _changed(self) -> list[int]:
        return [file.stat().st_mtime_ns for file in self._files]


def _load(certificate: str | Path, key: str | Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


def _self_signed() -> ssl.SSLContext:
    # imported here, because it takes memory and is needed only for a self-signed certificate
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elasticjob-operator")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), NOT_BEFORE, NOT_AFTER)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("elasticjob-operator")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with os.fdopen(os.memfd_create("elasticjob-key"), "wb") as memory:  # the key is never on disk
        memory.write(certificate.public_bytes(Encoding.PEM) + secret)
        memory.flush()
        return _load(f"/proc/self/fd/{memory.fileno()}")
