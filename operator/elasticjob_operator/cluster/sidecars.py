# SPDX-License-Identifier: Apache-2.0
"""Asks a sidecar what keeps its worker from joining: one GET to its pod, without a token and without TLS.

Any process with the pod's address may answer, so the answer is only for people: one line, bounded.
"""

from ipaddress import ip_address

import aiohttp

from elasticjob.api import HEALTH_PORT, TROUBLE_PATH
from elasticjob.text import plain

ANSWER_SECONDS = 3.0
ANSWER_BYTES, ANSWER_LENGTH = 4096, 800


async def trouble_of(address: str, port: int = HEALTH_PORT) -> str | None:
    """The sidecar's answer, empty if all is well; None if it does not answer."""
    limits = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    try:
        host = f"[{address}]" if ip_address(address).version == 6 else address
        async with (
            aiohttp.ClientSession(timeout=limits, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as http,
            http.get(f"http://{host}:{port}{TROUBLE_PATH}", allow_redirects=False) as answer,
        ):
            body = await answer.content.read(ANSWER_BYTES)
            return plain(body.decode(errors="replace"), ANSWER_LENGTH) if answer.status == 200 else None
    except (aiohttp.ClientError, OSError, ValueError):
        return None
