# SPDX-License-Identifier: Apache-2.0
"""The proxy for requests to the API server: the kubeconfig's, otherwise that of the environment, as Go reads it."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit


def proxy_of(server: str, named: str, environment: Mapping[str, str]) -> str:
    """The proxy's URL; empty for none. `named`: the cluster's `proxy-url`, to which NO_PROXY does not apply."""
    if named:
        return named
    parts = urlsplit(server)
    if _goes_direct(parts.hostname or "", parts.port, _variable(environment, "NO_PROXY")):
        return ""
    found = _variable(environment, f"{parts.scheme.upper()}_PROXY")
    return found if "://" in found or not found else f"http://{found}"


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _goes_direct(host: str, port: int | None, entries: str) -> bool:
    if host == "localhost" or _is_loopback(host):
        return True
    return any(_matches(host, port, one) for entry in entries.split(",") if (one := entry.strip().lower()))


def _matches(host: str, port: int | None, entry: str) -> bool:
    """Whether `entry` of NO_PROXY matches: `*`, an address, a network such as 10.0.0.0/8, or a domain, with or without
    a port."""
    if entry == "*" or _is_inside(host, entry):
        return True
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdecimal():
        if port != int(wanted):
            return False
        entry = name
    domain = entry.removeprefix("*")
    return host == domain or host.endswith(domain if domain.startswith(".") else f".{domain}")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_inside(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
