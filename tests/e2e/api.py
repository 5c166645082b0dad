# SPDX-License-Identifier: Apache-2.0
"""The API server without kubectl, whose every start takes a tenth of a second of processor time.

What the tests themselves do and look at goes this way. What they show of kubectl itself is done by kubectl.
"""

import base64
import contextlib
import http.client
import json
import ssl
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import yaml

from e2e.place import ENVIRONMENT, Failed, Object
from support.waiting import Deadline

ANSWER_SECONDS = 5.0  # of a kubelet that stands still there is no log
CALL_SECONDS = 180.0
AGAIN_SECONDS = 0.2
SILENT_SECONDS = 150.0  # of a watch; the API server says something each minute
JSON, MERGE = "application/json", "application/merge-patch+json"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Refused(Failed):
    """The API server says no; `code` is its HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


# --- who asks whom


@cache
def config() -> Object:
    """The cluster and the user of the kubeconfig's current context: `cluster` and `user`."""
    found = yaml.safe_load(Path(ENVIRONMENT["KUBECONFIG"]).read_text())
    context = _named(found["contexts"], found["current-context"])["context"]
    cluster = _named(found["clusters"], context["cluster"])["cluster"]
    return {"cluster": cluster, "user": _named(found["users"], context["user"])["user"]}


def _named(entries: list[Object], name: str) -> Object:
    return next(entry for entry in entries if entry["name"] == name)


def server() -> str:
    """The API server's URL."""
    return str(config()["cluster"]["server"])


@cache
def tls(*, administrator: bool) -> ssl.SSLContext:
    """To the API server, with the administrator's certificate, if there is one, or without any."""
    authority = config()["cluster"]["certificate-authority-data"]
    context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    user = config()["user"]
    if administrator and "client-key-data" in user:
        with NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
    return context


def token() -> str | None:
    """The administrator's, where a token and no certificate says who asks."""
    found: str | None = config()["user"].get("token")
    return found


# --- requests

_of_thread = threading.local()


def connect(seconds: float, *, administrator: bool = True) -> http.client.HTTPSConnection:
    """Not yet open; each answer may take `seconds`."""
    context = tls(administrator=administrator)
    return http.client.HTTPSConnection(urlsplit(server()).netloc, timeout=seconds, context=context)


def _connection(seconds: float) -> http.client.HTTPSConnection:
    """This thread's own, perhaps open."""
    found: http.client.HTTPSConnection | None = getattr(_of_thread, "connection", None)
    if found is None:
        found = _of_thread.connection = connect(seconds)
        weakref.finalize(threading.current_thread(), found.close)
    found.timeout = seconds
    if found.sock is not None:
        found.sock.settimeout(seconds)
    return found


def _headers(**more: str) -> dict[str, str]:
    return {**({"Authorization": f"Bearer {token()}"} if token() else {}), **more}


def exchange(
    connection: http.client.HTTPSConnection, method: str, path: str, data: str | None, headers: Mapping[str, str]
) -> tuple[int, str]:
    """The status and the text of an answer. Raises OSError and HTTPException where none comes."""
    while True:
        is_kept = connection.sock is not None
        try:
            connection.request(method, path, data, headers)
            with contextlib.closing(connection.getresponse()) as response:
                return response.status, response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if not is_kept or isinstance(error, TimeoutError):  # one that was kept may have ended meanwhile
                raise


def ask(path: str, **query: object) -> str | None:
    """What the API server answers to a GET; None for a refusal, and when no answer comes."""
    try:
        status, text = exchange(_connection(ANSWER_SECONDS), "GET", f"{path}?{urlencode(query)}", None, _headers())
    except (OSError, http.client.HTTPException):  # it restarts; the next call connects again
        return None
    return text if status == 200 else None


def call(
    method: str, path: str, body: object = None, *, kind: str = JSON, accept: str = JSON, **query: object
) -> Object:
    """The answer's JSON. Raises Refused, Failed where nobody answers, and Deadline where that takes too long."""
    data = None if body is None else json.dumps(body)
    headers = _headers(Accept=accept, **({} if data is None else {"Content-Type": kind}))
    whole = f"{path}?{urlencode(query)}" if query else path
    end = time.monotonic() + CALL_SECONDS
    while True:
        try:
            status, text = exchange(_connection(CALL_SECONDS), method, whole, data, headers)
        except TimeoutError as error:
            raise Deadline(f"an answer to {method} {path}", CALL_SECONDS) from error
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{method} {path}: {error!r}") from error
        if not _asks_to_try_again(status, text) or time.monotonic() > end:
            break
        time.sleep(AGAIN_SECONDS)
    if status >= http.client.BAD_REQUEST:
        raise Refused(status, f"{method} {path}: {_message(text)}")
    found: Object = json.loads(text)
    return found


def _asks_to_try_again(status: int, text: str) -> bool:
    """As an API server does that starts; a budget that refuses an eviction does not."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return status == http.client.TOO_MANY_REQUESTS and json.loads(text)["details"]["retryAfterSeconds"] > 0
    return False


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def watch(connection: http.client.HTTPSConnection, path: str, version: str | None) -> Iterator[Object]:
    """The events after `version`, or without one of all that is there and then of what follows; until they end.

    Bookmarks are among them. Raises OSError and HTTPException, and Refused.
    """
    query = {"watch": "true", "allowWatchBookmarks": "true"} | ({"resourceVersion": version} if version else {})
    connection.request("GET", f"{path}?{urlencode(query)}", None, _headers(Accept=JSON))
    response = connection.getresponse()
    if response.status != http.client.OK:
        raise Refused(response.status, f"watch {path}: {_message(response.read().decode(errors='replace'))}")
    text = b""
    while chunk := response.read1(1 << 20):
        *lines, text = (text + chunk).split(b"\n")
        yield from map(json.loads, lines)


# --- objects


class Resource(NamedTuple):
    version: str  # "v1", "apps/v1"
    plural: str
    kind: str
    namespaced: bool

    def path(self, namespace: str, *rest: str) -> str:
        """Of all, or of the object and its subresource that `rest` names."""
        base = f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"
        place = ("namespaces", namespace) if self.namespaced else ()
        return "/".join((base, *place, self.plural, *rest))


_by_name: dict[str, Resource] = {}


def resource(name: str, version: str = "") -> Resource:
    """By any name that kubectl takes, or by its kind in that version. Raises Failed."""
    key = f"{version}/{name}" if version else name.lower()
    if key not in _by_name:
        _discover()
    if key not in _by_name:
        raise Failed(f"the API server has no resource {key}")
    return _by_name[key]


def _discover() -> None:
    """Of two of the same name the core's is meant, else that of the group which the API server names first."""
    _by_name.clear()
    for base in ("/api", "/apis"):
        for group in call("GET", base, accept=DISCOVERY)["items"]:
            for version in group["versions"]:
                _note(group["metadata"].get("name", ""), version)


def _note(group: str, version: Object) -> None:
    for one in version.get("resources", ()):
        full = f"{group}/{version['version']}" if group else version["version"]
        kind, plural = one["responseKind"]["kind"], one["resource"]
        found = Resource(full, plural, kind, one["scope"] == "Namespaced")
        names = {plural, one.get("singularResource", ""), kind.lower(), *one.get("shortNames", ())} - {""}
        for name in (*sorted(names), *([f"{plural}.{group}"] if group else []), f"{full}/{kind}"):
            _by_name.setdefault(name, found)


def as_kubectl_shows(body: Object, of: Resource) -> Object:
    """An object, of a list too, with its kind and without managedFields."""
    meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {"apiVersion": of.version, "kind": of.kind, **body, "metadata": meta}
