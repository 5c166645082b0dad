# SPDX-License-Identifier: Apache-2.0
"""The trainer of `helm test`: one worker's life, as docs/trainer-api.md tells it, without torch."""

import json
import os
import socket
import urllib.request
from typing import Any

ADDRESS = f"http://{os.environ['PET_RDZV_ENDPOINT']}/v1"
TRAINER = "helm-test"


def say(path: str, **body: Any) -> Any:
    request = urllib.request.Request(f"{ADDRESS}/{path}", json.dumps({"trainer": TRAINER, **body}).encode())
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read() or "{}")


life = urllib.request.urlopen(f"{ADDRESS}/rendezvous/events?trainer={TRAINER}", timeout=300)
group = say("rendezvous", timeout=240)
print("joined", group, flush=True)
with socket.create_server(("127.0.0.1", 0)) as store:
    say("store", round=group["round"], port=store.getsockname()[1])
    weight = 0.0
    for _ in range(1000):
        weight -= 0.1 * 2 * (weight - 3)
    assert abs(weight - 3) < 1e-6, weight
    print("trained", flush=True)
    say("finish", round=group["round"])
life.close()
