# SPDX-License-Identifier: Apache-2.0
"""Make a sidecar's key and self-signed certificate and print them, in a separate process.

`cryptography` would take 9 MiB of memory for the sidecar's whole life, and is needed once.
"""

import os
import secrets
import sys
from contextlib import suppress
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

# The clocks of two nodes are never compared: a certificate is valid as long as its round, see RFC 5280, 4.1.2.5.
NOT_BEFORE, NOT_AFTER = datetime(2000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)


def make() -> bytes:
    """Certificate and key in PEM form, both new."""
    key = ec.generate_private_key(ec.SECP256R1())
    # a unique name, as OpenSSL looks a trusted certificate up by its name
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, secrets.token_hex(16))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(NOT_AFTER)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM) + secret


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the sidecar was stopped meanwhile
        os.write(sys.stdout.fileno(), make())
