# SPDX-License-Identifier: Apache-2.0
"""How sidecars know each other: by their certificates, which stand in the workers' records."""

import hashlib
import ssl
from itertools import count

LENGTH = 32
CHECKED_AT_ONCE = 64


def fingerprint_of(der: bytes) -> str:
    """The first 128 bits of the SHA-256 of a certificate in DER form, in hex."""
    return hashlib.sha256(der).hexdigest()[:LENGTH]


def der_of(certificate: str) -> bytes:
    """What a certificate in PEM form holds. Raises ValueError when that is not its form."""
    return ssl.PEM_cert_to_DER_cert(certificate)


def check_certificate(der: bytes) -> None:
    """Raises ValueError when TLS could make nothing of it. Takes an eighth of a millisecond."""
    try:
        _checked.context().load_verify_locations(cadata=der)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"no X.509 certificate ({error})") from None


class _Checked:
    """A context takes as long to make as a certificate to load, and keeps each: so one takes some of them."""

    def __init__(self) -> None:
        self._context, self._checks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), count(1)

    def context(self) -> ssl.SSLContext:
        if next(self._checks) % CHECKED_AT_ONCE == 0:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return self._context


_checked = _Checked()
