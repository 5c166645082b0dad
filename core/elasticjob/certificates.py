"""A sidecar's certificate is its identity: what the operator and the other sidecars check is this one rule."""

import hashlib
import ssl

ID_LENGTH = 32


def incarnation_id(der: bytes) -> str:
    """The first 128 bits of the SHA-256 of a certificate in DER form, in hex."""
    return hashlib.sha256(der).hexdigest()[:ID_LENGTH]


def der_of(certificate: str) -> bytes:
    """The DER form of one certificate in PEM form. Raises ValueError when it is none."""
    try:
        der = ssl.PEM_cert_to_DER_cert(certificate)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der)
    except (ValueError, ssl.SSLError) as error:
        raise ValueError(f"no certificate in PEM form: {error}") from None
    return der
