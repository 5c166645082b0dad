"""What is asked five times a second: without kubectl, whose every start takes a tenth of a second of processor time."""

import base64
import contextlib
import http.client
import json
import ssl
import threading
from functools import cache
from tempfile import NamedTemporaryFile
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from e2e.kube import kubectl

ANSWER_SECONDS = 5.0  # of a kubelet that stands still there is no log


class Server(NamedTuple):
    address: str
    tls: ssl.SSLContext


@cache
def server() -> Server:
    """The API server of the local cluster, to its administrator."""
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "--output=json"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with NamedTemporaryFile() as pair:
        pair.write(base64.b64decode(user["client-certificate-data"]))
        pair.write(base64.b64decode(user["client-key-data"]))
        pair.flush()
        tls.load_cert_chain(pair.name)
    return Server(urlsplit(cluster["server"]).netloc, tls)


_of_thread = threading.local()


def ask(path: str, **query: object) -> str | None:
    """What the API server answers to a GET; None for a refusal, and when no answer comes."""
    connection = getattr(_of_thread, "connection", None)
    if connection is None:
        address, tls = server()
        connection = http.client.HTTPSConnection(address, timeout=ANSWER_SECONDS, context=tls)
        _of_thread.connection = connection
    try:
        connection.request("GET", f"{path}?{urlencode(query)}")
        with contextlib.closing(connection.getresponse()) as response:
            said = response.read().decode(errors="replace")
            return said if response.status == 200 else None
    except (OSError, http.client.HTTPException):  # it restarts; the next call connects again
        connection.close()
        return None
