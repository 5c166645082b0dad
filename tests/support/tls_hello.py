# SPDX-License-Identifier: Apache-2.0
"""The first bytes of a sidecar that asks another one for the store of round 1."""

import contextlib
import ssl

from elasticjob_sidecar.store.credentials import server_name
from support.faulty_kube import JOB_UID


def client_hello() -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=server_name(JOB_UID, 1)).do_handshake()
    return outgoing.read()


HELLO = client_hello()
