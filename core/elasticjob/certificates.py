"""How sidecars know each other: by their certificates, which stand in the workers' records."""

import hashlib
import ssl

LENGTH = 32


def fingerprint_of(der: bytes) -> str:
    """The first 128 bits of the SHA-256 of a certificate in DER form, in hex."""
    return hashlib.sha256(der).hexdigest()[:LENGTH]


def der_of(certificate: str) -> bytes:
    """What a certificate in PEM form holds. Raises ValueError when that is not its form."""
    return ssl.PEM_cert_to_DER_cert(certificate)


def check_certificate(der: bytes) -> None:
    """Raises ValueError when TLS could make nothing of it. Takes half a millisecond."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"no X.509 certificate ({error})") from None
