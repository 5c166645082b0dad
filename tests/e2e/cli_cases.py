# SPDX-License-Identifier: Apache-2.0
"""The causes that `kubectl elasticjob why` names, each as a job that has it; test_cli.py makes them on the cluster."""

from collections.abc import Callable
from typing import Any, NamedTuple

from e2e.disruption import CONTROL_PLANE
from e2e.job import AGENT, IMAGE
from e2e.kube import Namespace, Object
from elasticjob.blocker_reasons import Reason
from elasticjob_cli.why.rows import LocalReason

NOWHERE = "localhost:1/nowhere:1"
SIZE = {"storage": "1Mi"}
# containerd speaks plain HTTP with localhost alone, so the registry is on the node
PRIVATE, PRIVATE_PORT = "localhost:5401/private:1", 5401
ASKS_FOR_CREDENTIALS = f"""
from http.server import BaseHTTPRequestHandler, HTTPServer
class Registry(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="private"')
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_HEAD = do_GET
HTTPServer(("127.0.0.1", {PRIVATE_PORT}), Registry).serve_forever()
"""

# an agent that takes its rounds and never serves a store
STORELESS = """
cp /test/group.py /tmp/
sed 's/membership.post_store(.*)/None/' /test/agent > /tmp/agent.py
exec python3 -u /tmp/agent.py /test/train.py
"""
# worker 1 takes its time
SLOW = f'case "$HOSTNAME" in *-1-0) sleep 3600;; esac; exec {" ".join(AGENT)}'
THEN = f"{' '.join(AGENT)} && "
# worker 1 takes its time between two torchruns
UPLOADS = f'{THEN} {{ case "$HOSTNAME" in *-1-0) sleep 3600;; esac; exec {" ".join(AGENT)}; }}'
# worker 1 runs another script than worker 0
OTHER = f'case "$HOSTNAME" in *-1-0) cp /test/train.py /tmp/other.py; exec {AGENT[0]} /tmp/other.py;; esac; {THEN} true'
ONE_STEP = [{"name": "STEPS", "value": "1"}]
# worker 1 fails at once
CRASHES = f'case "$HOSTNAME" in *-1-0) echo no data >&2; exit 3;; esac; exec {" ".join(AGENT)}'


class Case(NamedTuple):
    """A job that does not train at full size, and what `why` says of it. `there` was made before, and what of it is in
    no namespace is deleted after."""

    cause: str
    sentence: str
    change: Callable[[Object], None] = lambda spec: None
    replicas: int = 1
    there: tuple[Object, ...] = ()


def pod(**fields: Any) -> Callable[[Object], None]:
    return lambda spec: spec["template"]["spec"].update(fields)


def in_queue(name: str) -> Callable[[Object], None]:
    """As Kueue changes the pods of a queue that has no room."""

    def change(spec: Object) -> None:
        pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])(spec)
        spec["template"].setdefault("metadata", {}).setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = name

    return change


def trainer(**fields: Any) -> Callable[[Object], None]:
    return lambda spec: spec["template"]["spec"]["containers"][0].update(fields)


def both(*changes: Callable[[Object], None]) -> Callable[[Object], None]:
    def change(spec: Object) -> None:
        for one in changes:
            one(spec)

    return change


def of_job(**fields: Any) -> Callable[[Object], None]:
    return lambda spec: spec.update(fields)


def with_volume(**source: Any) -> Callable[[Object], None]:
    def change(spec: Object) -> None:
        spec["template"]["spec"]["volumes"].append({"name": "data", **source})
        spec["template"]["spec"]["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})

    return change


def claim(name: str) -> Callable[[Object], None]:
    return with_volume(persistentVolumeClaim={"claimName": name})


def shell(script: str) -> Callable[[Object], None]:
    return trainer(command=["sh", "-c", script])


def made(kind: str, name: str, **spec: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


UNBOUND = made(
    "PersistentVolumeClaim",
    "unbound",
    accessModes=["ReadWriteOnce"],
    storageClassName="of-tomorrow",
    resources={"requests": SIZE},
)
REGISTRY = made(
    "Pod",
    "registry",
    hostNetwork=True,
    nodeName=CONTROL_PLANE,
    tolerations=[{"operator": "Exists"}],
    terminationGracePeriodSeconds=0,
    containers=[{"name": "registry", "image": IMAGE, "command": ["python3", "-c", ASKS_FOR_CREDENTIALS]}],
)
NO_HANDLER = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "elasticjob-test-of-tomorrow"},
    "handler": "of-tomorrow",
}
WAITS = {"name": "wait", "image": IMAGE, "command": ["sleep", "3600"]}
FORBIDDEN = {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}
SECRET = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "no-such-secret", "key": "key"}}}
BROKEN = {"name": "fetch", "image": "elasticjob/digits:dev", "command": ["sh", "-c", "echo no route >&2; exit 3"]}

CASES = {
    "unschedulable": Case(Reason.UNSCHEDULABLE, "Insufficient cpu", trainer(resources={"requests": {"cpu": "1000"}})),
    "claim-missing": Case(
        Reason.CLAIM_NOT_READY, "there is no PersistentVolumeClaim no-such-claim", claim("no-such-claim")
    ),
    "claim-unbound": Case(
        Reason.CLAIM_NOT_READY,
        "the PersistentVolumeClaim unbound is Pending: storageclass",
        claim("unbound"),
        there=(UNBOUND,),
    ),
    "gate": Case(Reason.SCHEDULING_GATED, "example.com/queue", pod(schedulingGates=[{"name": "example.com/queue"}])),
    "queue": Case(Reason.QUOTA_PENDING, "in the queue gpus", in_queue("gpus")),
    "image": Case(Reason.IMAGE_PULL, NOWHERE, trainer(image=NOWHERE)),
    "pull-secret": Case(
        LocalReason.PULL_SECRET,
        "Unable to retrieve some image pull secrets (no-such-secret)",
        both(trainer(image=NOWHERE), pod(imagePullSecrets=[{"name": "no-such-secret"}])),
    ),
    "credentials": Case(
        LocalReason.PULL_SECRET, "no basic auth credentials", trainer(image=PRIVATE), there=(REGISTRY,)
    ),
    "config": Case(Reason.CONFIG_MISSING, 'secret "no-such-secret" not found', trainer(env=[SECRET])),
    "volume": Case(
        LocalReason.VOLUME, 'configmap "no-such-map" not found', with_volume(configMap={"name": "no-such-map"})
    ),
    "container-error": Case(
        Reason.CONTAINER_ERROR, "no such file or directory", trainer(command=["/nowhere"], env=[{"name": "PYTHONPATH"}])
    ),
    "crash-loop": Case(
        Reason.TRAINER_CRASHES, "exit code 3: no data", both(shell("echo no data >&2; exit 3"), of_job(maxRestarts=100))
    ),
    "init-crashes": Case(
        Reason.INIT_CRASHES, "exit code 3: no route", both(pod(initContainers=[BROKEN]), of_job(maxRestarts=100))
    ),
    "starting": Case(Reason.POD_STARTING, "its init container wait runs for ", pod(initContainers=[WAITS])),
    "sandbox": Case(
        LocalReason.SANDBOX,
        'no runtime for "of-tomorrow" is configured',
        pod(runtimeClassName=NO_HANDLER["metadata"]["name"]),
        there=(NO_HANDLER,),
    ),
    "back-off": Case(
        Reason.POD_BACK_OFF,
        "in a row: its node rejected the pod (SysctlForbidden",
        both(pod(securityContext=FORBIDDEN), of_job(maxRestarts=100)),
    ),
    "template-invalid": Case(
        Reason.TEMPLATE_INVALID, "spec.template.spec.nodeName must be left out", pod(nodeName="node-a")
    ),
    "suspended": Case(LocalReason.SUSPENDED, "spec.suspend is true", of_job(suspend=True)),
    "failed": Case(LocalReason.FAILED, "its command must be torchrun", trainer(command=["true"])),
    "storeless": Case(
        LocalReason.STORELESS,
        "did not serve the round's store in time",
        both(shell(STORELESS), of_job(minReplicas=2, rendezvous={"storeReadySeconds": 3})),
        replicas=2,
    ),
    "slow-joiner": Case(
        LocalReason.NO_TORCHRUN,
        "worker 1, whose trainer has run for",
        both(shell(SLOW), of_job(minReplicas=2)),
        replicas=2,
    ),
    "last-call": Case(
        LocalReason.NO_TORCHRUN,
        "It goes on with 1 of 2 at the latest 600 s after enough have joined",
        both(shell(SLOW), of_job(rendezvous={"lastCallSeconds": 600})),
        replicas=2,
    ),
    "one-short": Case(
        Reason.TRAINER_CRASHES,
        "It trains without worker 1, whose trainer crashes before it joins: ",
        both(shell(CRASHES), of_job(maxRestarts=100)),
        replicas=2,
    ),
    "no-scheduler": Case(
        LocalReason.NO_SCHEDULER, "whose pod no scheduler has placed for", pod(schedulerName="of-tomorrow")
    ),
    "complete": Case(
        LocalReason.COMPLETE,
        "all workers of the last round finished (1 in all)",
        trainer(env=ONE_STEP),
    ),
    "finishing": Case(
        Reason.FINISHING,
        "torchrun has ended in success in worker 0, and the container of worker 0 goes on",
        both(shell(f"{THEN} sleep 3600"), trainer(env=ONE_STEP)),
    ),
    "container-failed": Case(
        Reason.CONTAINER_FAILED,
        "after its torchrun had ended in success (exit code 3",
        both(shell(f"{THEN} exit 3"), trainer(env=ONE_STEP), of_job(maxRestarts=9)),
    ),
    "between-stages": Case(
        Reason.FINISHING,
        "worker 1, whose next torchrun has not begun: that of stage 1 has ended in success",
        both(shell(UPLOADS), trainer(env=ONE_STEP), of_job(minReplicas=2)),
        replicas=2,
    ),
    "scripts-differ": Case(
        LocalReason.FAILED,
        "worker 1 runs other.py as its torchrun, and worker 0 runs train.py: the containers of all workers must run",
        both(shell(OTHER), of_job(minReplicas=2)),
        replicas=2,
    ),
}


def of_record(name: str, **spec: Any) -> Callable[[Namespace], None]:
    """A patch of the ElasticWorker that its sidecar did not write."""

    def make(namespace: Namespace) -> None:
        namespace.patch("elasticworker", name, {"spec": spec})

    return make


class Later(NamedTuple):
    """What befalls a job that trains."""

    cause: str
    sentence: str
    befalls: Callable[[Namespace], None]


LATER = {
    "invalid-record": Later(
        Reason.INVALID_RECORD,
        "spec.address is 10.255.255.1:27601, and the pod's own is",
        of_record("invalid-record-0-0", address="10.255.255.1:27601"),
    ),
    "closed": Later(LocalReason.CLOSED, "closed by worker 0", of_record("closed-0-0", request={"type": "Close"})),
}
