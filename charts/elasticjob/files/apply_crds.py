# SPDX-License-Identifier: Apache-2.0
"""Brings an installation's CRDs up to date before an upgrade: by server-side apply, so nothing is ever deleted."""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
SERVER = os.environ.get("SERVER", "https://kubernetes.default.svc")
GROUP = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SECONDS = 60


def apply(name: str, text: bytes) -> None:
    url = f"{SERVER}{GROUP}/{name}?fieldManager=elasticjob-chart&force=true"
    headers = {
        "Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}",
        "Content-Type": "application/apply-patch+yaml",
    }
    request = urllib.request.Request(url, text, headers, method="PATCH")
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        print(f"{name} is up to date:", json.load(answer)["metadata"]["resourceVersion"], flush=True)


def main() -> None:
    left = {path.stem: path.read_bytes() for path in sorted(Path(sys.argv[1]).glob("*.yaml"))}
    deadline = time.monotonic() + SECONDS
    while left:
        name = next(iter(left))
        try:
            apply(f"{name}.elasticjob.io", left[name])
            del left[name]
        except urllib.error.HTTPError as error:
            sentence = f"{name}: {error.code} {error.read().decode(errors='replace')[:500]}"
            if error.code < 429 or time.monotonic() > deadline:
                sys.exit(sentence)
            print(sentence, flush=True)
            time.sleep(2)
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"{name}: {error}")
            time.sleep(2)


if __name__ == "__main__":
    main()
