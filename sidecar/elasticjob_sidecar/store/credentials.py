# SPDX-License-Identifier: Apache-2.0
"""This incarnation's key and certificate, and the TLS settings for authentication.

Mutual TLS 1.3 without any authority. The certificate itself is the identity: each worker's is in its ElasticWorker, and
the fingerprint of rank 0's is in the job's status, with the store's address. The server name is the round and the job,
so that a connection of another round or job ends before anything else is checked.
"""

import logging
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

MAKE_SECONDS = 30.0
END_OF_CERTIFICATE = "-----END CERTIFICATE-----\n"


class CredentialsError(Exception):
    """No key could be made. Its text is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Credentials:
    certificate: str
    """In PEM form; public."""
    key: str = field(repr=False)

    def client_context(self) -> ssl.SSLContext:
        """For connections to rank 0. The caller must check which server it has reached: see `Transport.connect`."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def server_context(self, trusted: Iterable[bytes], is_expected: Callable[[str | None], bool]) -> ssl.SSLContext:
        """For callers with one of the certificates `trusted` (DER) that ask for a name that `is_expected`."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # a resumed session would not show its certificate
        for certificate in trusted:
            try:
                context.load_verify_locations(cadata=certificate)
            except (ssl.SSLError, ValueError) as error:
                log.warning("a member's certificate is none (%s): it will not be let in", error)

        def check_name(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int | None:
            return None if is_expected(name) else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

        context.sni_callback = check_name
        return context

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_ecdh_curve("X25519")  # the default, a hybrid with ML-KEM, makes a connection a fifth slower
        with os.fdopen(os.memfd_create("elasticjob-key"), "w") as memory:  # the key is never on a disk
            memory.write(self.certificate + self.key)
            memory.flush()
            context.load_cert_chain(f"/proc/self/fd/{memory.fileno()}")
        return context


def server_name(job_uid: str, round: int, offset: int = 0) -> str:
    """The TLS server name of rank 0 of a round for its store, or for the port `offset` after the store's."""
    return f"{f'plus-{offset}' if offset else 'round'}-{round}.{job_uid}.elasticjob"


def link_name(job_uid: str, round: int) -> str:
    """The TLS server name of rank 0 of a round for a heartbeat link."""
    return f"line-{round}.{job_uid}.elasticjob"


class CredentialsMaker:
    """Makes credentials in another process, while this one goes on."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "elasticjob_sidecar.store.certificate"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def result(self) -> Credentials:
        """The credentials. Raises CredentialsError."""
        try:
            printed, _ = self._process.communicate(timeout=MAKE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise CredentialsError(f"no key and certificate were made within {MAKE_SECONDS:g} s") from None
        certificate, end, key = printed.partition(END_OF_CERTIFICATE)
        if self._process.returncode != 0 or not end:
            raise CredentialsError("no key and certificate could be made; the lines above say why")
        return Credentials(certificate + end, key)
