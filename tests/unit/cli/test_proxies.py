# SPDX-License-Identifier: Apache-2.0
"""Through which proxy: the kubeconfig's, else that of the environment, as Go programs read it."""

import pytest

from elasticjob_cli.cluster.proxies import proxy_of

SECURE = {"HTTPS_PROXY": "http://p:3128", "HTTP_PROXY": "http://q"}


@pytest.mark.parametrize(
    ("server", "entries", "proxy"),
    [
        ("https://api.example.com", "", "http://p:3128"),
        ("http://api.example.com", "", "http://q"),
        ("https://api.example.com", "other.com, .org", "http://p:3128"),
        ("https://api.example.com", "example.com", ""),
        ("https://api.example.com", ".example.com", ""),
        ("https://api.example.com", "*.example.com", ""),
        ("https://api.example.com", "ample.com", "http://p:3128"),
        ("https://example.com", ".example.com", "http://p:3128"),
        ("https://api.example.com:6443", "api.example.com:6443", ""),
        ("https://api.example.com:6443", "api.example.com:443", "http://p:3128"),
        ("https://10.1.2.3", "10.0.0.0/8", ""),
        ("https://11.1.2.3", "10.0.0.0/8", "http://p:3128"),
        ("https://10.1.2.3", "10.1.2.3", ""),
        ("https://[fd00::1]:6443", "fd00::/8", ""),
        ("https://api.example.com", "*", ""),
        ("https://localhost:6443", "", ""),
        ("https://127.0.0.1:6443", "", ""),
    ],
)
def test_the_environment_names_a_proxy_and_who_needs_none(server: str, entries: str, proxy: str) -> None:
    assert proxy_of(server, "", SECURE | {"no_proxy": entries}) == proxy


def test_the_kubeconfigs_proxy_counts_before_the_environments() -> None:
    assert proxy_of("https://a", "socks5://b", SECURE | {"NO_PROXY": "*"}) == "socks5://b"


def test_a_proxy_without_a_scheme_speaks_http() -> None:
    assert proxy_of("https://a", "", {"https_proxy": "p:3128"}) == "http://p:3128"
