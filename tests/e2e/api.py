# SPDX-License-Identifier: Apache-2.0
"""What is asked five times a second: without kubectl, whose every start takes a tenth of a second of processor time."""

import base64
import contextlib
import http.client
import json
import ssl
import threading
import weakref
from functools import cache
from tempfile import NamedTemporaryFile
from urllib.parse import urlencode, urlsplit

from e2e.kube import Object, kubectl

ANSWER_SECONDS = 5.0  # of a kubelet that stands still there is no log


@cache
def config() -> Object:
    """The kubeconfig of the local cluster's administrator."""
    found: Object = json.loads(kubectl("config", "view", "--raw", "--minify", "--output=json"))
    return found


def server() -> str:
    """The API server's URL."""
    return str(config()["clusters"][0]["cluster"]["server"])


def tls(*, administrator: bool) -> ssl.SSLContext:
    """To the API server, with the administrator's certificate, if there is one, or without any."""
    authority = config()["clusters"][0]["cluster"]["certificate-authority-data"]
    context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    user = config()["users"][0]["user"]
    if administrator and "client-key-data" in user:
        with NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
    return context


def token() -> str | None:
    """The administrator's, where a token and no certificate says who asks."""
    found: str | None = config()["users"][0]["user"].get("token")
    return found


_of_thread = threading.local()


def ask(path: str, **query: object) -> str | None:
    """What the API server answers to a GET; None for a refusal, and when no answer comes."""
    connection = getattr(_of_thread, "connection", None)
    if connection is None:
        address, context = urlsplit(server()).netloc, tls(administrator=True)
        connection = http.client.HTTPSConnection(address, timeout=ANSWER_SECONDS, context=context)
        _of_thread.connection = connection
        weakref.finalize(threading.current_thread(), connection.close)
    try:
        headers = {"Authorization": f"Bearer {token()}"} if token() else {}
        connection.request("GET", f"{path}?{urlencode(query)}", headers=headers)
        with contextlib.closing(connection.getresponse()) as response:
            said = response.read().decode(errors="replace")
            return said if response.status == 200 else None
    except (OSError, http.client.HTTPException):  # it restarts; the next call connects again
        connection.close()
        return None
