# SPDX-License-Identifier: Apache-2.0
"""`helm test`: runs an ElasticJob of one worker to its end, and says what became of it."""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
SERVER = os.environ.get("SERVER", "https://kubernetes.default.svc")
SECONDS = float(os.environ.get("SECONDS", "240"))


def ask(method: str, path: str, body: Any = None) -> Any:
    """Raises HTTPError, and OSError where the API server does not answer."""
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data, headers, method=method)
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return json.load(answer)


def remove(path: str, until: float) -> None:
    """Delete the job, and wait until it is gone."""
    while time.monotonic() < until:
        try:
            ask("DELETE", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return
            raise
        time.sleep(1)
    sys.exit(f"{path} was not deleted in time")


def end_of(path: str, until: float) -> dict[str, Any]:
    """The job's last status; each change of it is printed."""
    said = ""
    while True:
        status: dict[str, Any] = ask("GET", path).get("status", {})
        conditions = {one["type"]: one for one in status.get("conditions", ())}
        message = conditions.get("Rendezvoused", {}).get("message", "no operator has looked at it yet")
        now = f"{status.get('phase', 'Pending')} {status.get('reason', '')}: {message}"
        if now != said:
            print(now, flush=True)
            said = now
        if status.get("phase") in ("Complete", "Failed"):
            return status
        if time.monotonic() > until:
            sys.exit(f"the job has not ended within {SECONDS:g} s; last seen: {now}")
        time.sleep(1)


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    until = time.monotonic() + SECONDS
    jobs = f"/apis/elasticjob.io/v1alpha1/namespaces/{job['metadata']['namespace']}/elasticjobs"
    path = f"{jobs}/{job['metadata']['name']}"
    remove(path, until)  # of a test that was cut off
    ask("POST", jobs, job)
    phase = end_of(path, until)["phase"]
    if phase != "Complete":
        sys.exit("the job has failed; it is kept: kubectl describe elasticjob says why")
    remove(path, until)


if __name__ == "__main__":
    main()
