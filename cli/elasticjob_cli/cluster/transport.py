# SPDX-License-Identifier: Apache-2.0
"""HTTP requests to one API server, from several threads at once. Errors are raised as sentences."""

import os
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from elasticjob.kube.errors import Unavailable, kind_of, message_of
from elasticjob.kube.names import user_agent
from elasticjob.text import printable
from elasticjob_cli.cluster.access import ClusterAccess
from elasticjob_cli.cluster.credentials import UserCredentials, data_of, file_of, log_in
from elasticjob_cli.cluster.kubeconfig import unusable
from elasticjob_cli.cluster.proxies import proxy_of
from elasticjob_cli.errors import CliError, Exit

CONNECT_SECONDS = 10.0
SILENT_SECONDS = 300.0  # without a line of a log, after which it is requested again
CONNECTIONS = 8  # kept open for later requests
# a kept connection may have been closed meanwhile; urllib3 repeats no request that changes an object
ONCE_MORE = urllib3.Retry(total=1, connect=0, redirect=0, status=0, other=0, read=1, raise_on_status=False)


class RequestRefused(CliError):
    """The API server refused the request. `status`: the HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence, Exit.NOT_FOUND if status == 404 else Exit.REFUSED)
        self.status = status


class NoAnswer(CliError):
    """The API server could not be reached, or did not answer."""


def may_pass(error: CliError) -> bool:
    """Whether the same request may succeed a moment later, for example while an API server restarts."""
    away = isinstance(error, RequestRefused) and issubclass(kind_of(error.status), Unavailable)
    return away or isinstance(error, NoAnswer)


class SyncTransport:
    """Sends requests. `now`: the API server's time at its last answer."""

    def __init__(self, access: ClusterAccess) -> None:
        self.now = datetime.now(UTC)
        self.server, self._access = access.server, access
        self._lock = threading.Lock()
        self._credentials = UserCredentials()
        self._pool: urllib3.PoolManager | None = None

    def ask(self, method: str, path: str, query: Mapping[str, str] | None = None, **given: Any) -> bytes:
        """The body of the answer. `given`: `body`, in bytes, and `content_type`. Raises RequestRefused and NoAnswer."""
        limit = self._access.request_seconds
        with _sentences():
            answer = self._send(method, path, query, urllib3.Timeout(total=limit), preload=True, **given)
            if date := answer.headers.get("Date"):
                self.now = parsedate_to_datetime(date)
            return answer.data

    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """The pieces of the answer as they arrive, until it ends or nothing arrives for long. Raises RequestRefused and
        NoAnswer."""
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=SILENT_SECONDS)
        with _sentences():
            answer = self._send("GET", path, query, timeout, preload=False)
        try:
            yield from answer.stream(1 << 14, decode_content=False)
        except HTTPError:
            return  # the caller asks again, from the last line on
        finally:
            answer.close()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.clear()

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        timeout: urllib3.Timeout,
        *,
        preload: bool,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> urllib3.BaseHTTPResponse:
        pool, credentials = self._connected()
        headers = urllib3.HTTPHeaderDict({"User-Agent": user_agent("cli"), "Accept": "application/json, */*"})
        if credentials.authorization:
            headers["Authorization"] = credentials.authorization
        if body is not None:
            headers["Content-Type"] = content_type
        for name, value in self._access.impersonated:
            headers.add(name, value)
        url = f"{self.server}{path}{f'?{urlencode(query)}' if query else ''}"
        answer = pool.request(
            method, url, body=body, headers=headers, timeout=timeout, retries=ONCE_MORE, preload_content=preload
        )
        if answer.status >= 300:
            raise _refusal(answer.status, answer.reason or "", answer.data)
        return answer

    def _connected(self) -> tuple[urllib3.PoolManager, UserCredentials]:
        with self._lock:
            if self._pool is None or self._credentials.have_expired(datetime.now(UTC)):
                self._credentials = log_in(self._access)
                self._pool = _pool(self._access, self._credentials)
            elif self._access.user.text("tokenFile"):  # the file is rewritten before its token expires
                self._credentials = log_in(self._access)
            return self._pool, self._credentials


def _pool(access: ClusterAccess, credentials: UserCredentials) -> urllib3.PoolManager:
    given: dict[str, Any] = {"maxsize": CONNECTIONS}
    if access.server.startswith("https:"):
        given["ssl_context"] = _tls(access, credentials)
    if access.server_name:
        given |= {"server_hostname": access.server_name}
        given |= {} if access.insecure else {"assert_hostname": access.server_name}
    proxy = proxy_of(access.server, access.proxy, os.environ)
    if not proxy:
        return urllib3.PoolManager(**given)
    if proxy.startswith("socks"):
        return _socks(proxy, given)
    user = urllib3.util.parse_url(proxy).auth
    headers = urllib3.make_headers(proxy_basic_auth=user) if user else None
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **given)


def _socks(proxy: str, given: dict[str, Any]) -> urllib3.PoolManager:
    try:
        from urllib3.contrib.socks import SOCKSProxyManager
    except ImportError as error:
        host = urlsplit(proxy).hostname  # without the password that a proxy's URL may have
        raise CliError(
            f"the proxy {host} needs the Python package PySocks: install it beside elasticjob-cli"
        ) from error
    return SOCKSProxyManager(proxy, **given)


def _tls(access: ClusterAccess, credentials: UserCredentials) -> ssl.SSLContext:
    """The TLS settings. Raises CliError for invalid certificates."""
    authority = access.authority_data and data_of(access.authority_data, "certificate-authority-data")
    if access.authority and not authority:
        authority = file_of(access.authority, "certificate-authority")
    try:
        context = ssl.create_default_context(cadata=authority or None)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Python is stricter about authorities than kubectl
        if access.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            urllib3.disable_warnings(InsecureRequestWarning)  # the user requested it
        if credentials.certificate:
            _present(context, credentials)
    except (ssl.SSLError, ValueError) as error:
        raise unusable(f"a certificate or key of it is not PEM ({error})") from error
    return context


def _present(context: ssl.SSLContext, credentials: UserCredentials) -> None:
    """Loads the client certificate. Python reads it only from a file: for a moment there is one, readable by its owner
    alone."""
    handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f"{credentials.certificate}\n{credentials.key}")
        context.load_cert_chain(path)
    finally:
        os.unlink(path)


@contextmanager
def _sentences() -> Iterator[None]:
    try:
        yield
    except HTTPError as error:
        reason = getattr(error, "reason", None) or error
        raise NoAnswer(f"the API server does not answer: {reason}; see --kubeconfig and --context") from error


def _refusal(status: int, reason: str, body: bytes) -> RequestRefused:
    message = message_of(body) or f"{status} {printable(reason)}"
    if status == 401:
        return RequestRefused(status, f"the API server does not know who you are ({message}): log in anew")
    if status == 404 and message.startswith(("404 page not found", "the server could not find the requested resource")):
        return RequestRefused(status, "the cluster has no ElasticJobs: install the chart, or choose another --context")
    return RequestRefused(status, message)
