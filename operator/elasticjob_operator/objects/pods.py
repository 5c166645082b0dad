# SPDX-License-Identifier: Apache-2.0
"""Renders a worker's pod from the job's template. Pure: the same arguments give the same pod."""

from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from elasticjob.api import (
    API_VERSION,
    HEALTH_PORT,
    INDEX_LABEL,
    JOB_LABEL,
    JOB_UID_LABEL,
    MAX_REPLICAS,
    TRAINER_API_PORT,
    TUNNEL_PORT,
    ElasticJobSpec,
    HostNetworkSpec,
)
from elasticjob.objects import Object
from elasticjob.pods import (
    AVOIDED_NODES,
    BATCH,
    JOB_UID,
    QUEUE_LABEL,
    QUEUE_PRIORITY_LABEL,
    SIDECAR,
    TEMPLATE_HASH,
    WORKLOAD,
    pod_name,
)
from elasticjob_operator.objects import placement
from elasticjob_operator.objects.admitted import Admission, add

OF_ONE_POD = (AVOIDED_NODES, WORKLOAD)  # annotations
WORKER = "elasticjob-worker"  # in app.kubernetes.io/name; the operator's own pods have another
PLUGIN_VOLUME, STATE_VOLUME, TOKEN_VOLUME = "elasticjob-trainer", "elasticjob-state", "elasticjob-token"
VOLUMES = frozenset({PLUGIN_VOLUME, STATE_VOLUME, TOKEN_VOLUME})
PLUGIN_PATH = "/elasticjob/trainer"
TRAINER_SOCKET = f"{PLUGIN_PATH}/.sidecar"  # instead of a port if the pod is in its node's network
PLUGIN_COMPLETE = f"{PLUGIN_PATH}/.complete"  # written last, when the sidecar has filled the folder
STATE_PATH = "/var/lib/elasticjob"
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3600
SIDECAR_RESOURCES = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}}
# meets the strictest of Kubernetes' Pod Security Standards
SIDECAR_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
# How long a sidecar may take to start on an overloaded node. A startup probe would do the same, but would delay the
# trainer until the kubelet has probed: by 0.7 s for each pod.
START_SECONDS = 240
# A failed probe is a warning among the pod's events, so the kubelet waits before the first one. Then it probes
# each second: with a longer period it would notice later that the sidecar is ready.
ANSWERS_SECONDS, UNREADY_SECONDS = 2, 15
# The sidecar has filled the folder before most trainers look. A hook that delays the trainer until then costs a
# process in the sidecar's container, and the kubelet considers the next container only after that process has ended.
AWAIT_PLUGIN = (
    f'trap "exit 143" TERM; elasticjob_looks=0; until [ -e {PLUGIN_COMPLETE} ]; do '
    "[ $((elasticjob_looks += 1)) -le 3000 ] || "
    '{ echo "elasticjob: the sidecar brings no torchrun plug-in; its log says why" >&2; exit 1; }; '
    "sleep 0.02 2>/dev/null || sleep 1; done; unset elasticjob_looks; "
)
# Only the container itself knows the values of the image's variables and of those from `envFrom`.
EXTEND_PYTHONPATH = f'export PYTHONPATH="{PLUGIN_PATH}${{PYTHONPATH:+:$PYTHONPATH}}"; '
PREPARE = ("/bin/sh", "-c", AWAIT_PLUGIN + EXTEND_PYTHONPATH + 'exec "$0" "$@"')
# torchrun's own limit is never reached: only the operator counts failures
UNLIMITED_RESTARTS = 2**31 - 1
RESERVED_ENVIRONMENT = frozenset(
    {
        "PET_RDZV_BACKEND",
        "PET_RDZV_ENDPOINT",
        "PET_RDZV_ID",
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_MAX_RESTARTS",
        "PET_STANDALONE",
    }
)


@dataclass(frozen=True, slots=True)
class SidecarImage:
    """The sidecar's image, and the resources, security context and environment of its container."""

    name: str
    pull_policy: str
    resources: Object = field(default_factory=lambda: SIDECAR_RESOURCES)
    security: Object = field(default_factory=lambda: SIDECAR_SECURITY)
    environment: Mapping[str, str] = field(default_factory=dict)


def selector(job: str) -> str:
    """Selects the pods of all jobs of this name: an earlier one may have left some."""
    return f"{JOB_LABEL}={job}"


def own_selector(job: Object) -> str:
    """Selects the job's own pods alone: an autoscaler must not see others."""
    return f"{selector(job['metadata']['name'])},{JOB_UID_LABEL}={job['metadata']['uid']}"


def owner_reference(job: Object) -> Object:
    meta = job["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": "ElasticJob",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def access_name(job: str) -> str:
    """The name of the objects made for the job's workers: account, Role, RoleBinding, policy and budget."""
    return f"{job}-worker"


def service_account(job: str, spec: ElasticJobSpec) -> str:
    """The account that the template names, in either of the two fields, or the one that the operator makes for the
    job."""
    pod = spec.template.get("spec")
    if not isinstance(pod, dict):  # the status reports an invalid template
        return access_name(job)
    return pod.get("serviceAccountName") or pod.get("serviceAccount") or access_name(job)


def render_pod(
    job: Object,
    spec: ElasticJobSpec,
    index: int,
    replacement: int,
    image: SidecarImage,
    *,
    batch: str,
    avoid: Iterable[str] = (),
    exclude: Collection[str] = (),
    imports: str = "",
    spare: bool = False,
    admitted: Admission | None = None,
) -> Object:
    """The pod of worker `index` with the number `replacement`. Does not change its arguments.

    `batch`: distinguishes it from a pod of the same name made at another time. `avoid`: nodes to use only if others
    have no room. `exclude`: nodes never to use. `spare`: the pod prefers a node without others of the job, so that a
    lost node does not take both a member and its spare. `imports`: the modules that the script is known to import, for
    prestarted processes. `admitted`: what the pod's quota adds to it.
    """
    meta, template = job["metadata"], deepcopy(spec.template)
    if admitted:
        add(template, admitted)
    given = template.get("metadata") or {}
    labels = {JOB_LABEL: meta["name"], JOB_UID_LABEL: meta["uid"], INDEX_LABEL: str(index)}
    labels["app.kubernetes.io/managed-by"] = "elasticjob"
    usual = {"name": WORKER, "instance": meta["name"], "component": "worker"}
    usual = {f"app.kubernetes.io/{key}": value for key, value in usual.items()}
    pod = template["spec"]
    trainer = next(one for one in pod["containers"] if one["name"] == spec.trainer_container)
    _prepare_trainer(trainer, meta, spec, imports)
    for container in (*pod["containers"], *(pod.get("initContainers") or ())):
        _say_whose(container, meta, index)
    pod["restartPolicy"] = "OnFailure"
    pod["serviceAccountName"] = service_account(meta["name"], spec)
    pod.setdefault("automountServiceAccountToken", False)
    pod["initContainers"] = [
        *(pod.get("initContainers") or ()),
        _sidecar(meta, spec, index, batch, image) | _hold_back(trainer),
    ]
    for container in (trainer, *pod["initContainers"]):
        # the end of the log explains a failure in the job's events and conditions
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    folders = [{"name": name, "emptyDir": {}} for name in (PLUGIN_VOLUME, STATE_VOLUME)]
    pod["volumes"] = [*(pod.get("volumes") or ()), *folders, _token_volume()]
    tolerations = pod.get("tolerations") or []
    pod["tolerations"] = [*tolerations, *placement.node_lost_tolerations(tolerations)]
    for node in sorted(avoid):
        placement.avoid(pod, node)
    if exclude:
        placement.exclude(pod, sorted(exclude))
    if spare:
        placement.keep_apart(pod, meta["name"])
    # a template copied from a pod has the annotations of that pod
    annotations = {name: text for name, text in (given.get("annotations") or {}).items() if name not in OF_ONE_POD}
    annotations |= {WORKLOAD: admitted.workload} if admitted else {}
    annotations |= {TEMPLATE_HASH: spec.template_hash} | ({AVOIDED_NODES: ",".join(sorted(exclude))} if exclude else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(meta["name"], index, replacement),
            "namespace": meta["namespace"],
            "labels": {**usual, **_queue_labels(meta, spec), **(given.get("labels") or {}), **labels},
            "annotations": annotations,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": pod,
    }


def _queue_labels(meta: Object, spec: ElasticJobSpec) -> dict[str, str]:
    """The job's queue labels, which its pods get unless the template has its own: Kueue admits pods. A gang's pods get
    none, because Kueue must ignore them."""
    if spec.admitted_as_gang:
        return {}
    given = meta.get("labels") or {}
    return {label: given[label] for label in (QUEUE_LABEL, QUEUE_PRIORITY_LABEL) if label in given}


def _prepare_trainer(trainer: Object, meta: Object, spec: ElasticJobSpec, imports: str) -> None:
    given = {variable["name"]: variable for variable in trainer.get("env") or ()}
    ours = {
        "PET_RDZV_BACKEND": "elasticjob",
        "PET_RDZV_ENDPOINT": f"unix:{TRAINER_SOCKET}" if spec.host_network else f"127.0.0.1:{TRAINER_API_PORT}",
        "PET_RDZV_ID": meta["uid"],
        "PET_NNODES": f"{spec.min_replicas}:{spec.max_replicas or MAX_REPLICAS}",
        "PET_NPROC_PER_NODE": str(spec.nproc_per_node),
        "PET_MAX_RESTARTS": str(UNLIMITED_RESTARTS),
        "PET_STANDALONE": "0",  # a value from the image or envFrom would override the job's rendezvous
        "ELASTICJOB_STOP_SECONDS": str(spec.rendezvous.stop_seconds),
        "ELASTICJOB_SAVE_SECONDS": str(spec.rendezvous.save_seconds),
        "ELASTICJOB_REJOIN_SECONDS": str(spec.rendezvous.rejoin_seconds),
        "ELASTICJOB_STORE_READY_SECONDS": str(spec.rendezvous.store_ready_seconds),
    }
    if spec.warm_restart != "Disabled":
        known = {"ELASTICJOB_WARM_IMPORTS": imports} if imports else {}
        ours |= {"ELASTICJOB_WARM_RESTART": spec.warm_restart, **known}
    if "PYTHONPATH" in given:  # keeps its place, after the variables that it may refer to
        before = given["PYTHONPATH"].get("value")
        given["PYTHONPATH"] = {"name": "PYTHONPATH", "value": f"{PLUGIN_PATH}:{before}" if before else PLUGIN_PATH}
    elif trainer.get("command"):
        trainer["command"] = [*PREPARE, *trainer["command"]]
    else:
        ours["PYTHONPATH"] = PLUGIN_PATH  # the image's entry point is unknown here
    fixed = [{"name": name, "value": value} for name, value in ours.items() if name not in given]
    trainer["env"] = fixed + list(given.values())
    mount = {"name": PLUGIN_VOLUME, "mountPath": PLUGIN_PATH, "readOnly": True}
    trainer["volumeMounts"] = [*(trainer.get("volumeMounts") or ()), mount]


def _say_whose(container: Object, meta: Object, index: int) -> None:
    """Adds the variables that name the container's job and worker, so that the template's own may refer to them. The
    rank is not among them, because it changes while the container runs."""
    ours = {
        "ELASTICJOB_NAME": meta["name"],
        "ELASTICJOB_NAMESPACE": meta["namespace"],
        "ELASTICJOB_INDEX": str(index),
    }
    given = container.get("env") or ()
    names = {variable["name"] for variable in given}
    container["env"] = [{"name": name, "value": value} for name, value in ours.items() if name not in names] + [*given]


def _hold_back(trainer: Object) -> Object:
    """The sidecar's hook that delays the start of the trainer. Empty if the trainer's command waits for the plug-in
    itself."""
    if tuple((trainer.get("command") or ())[: len(PREPARE)]) == PREPARE:
        return {}
    # bounded, because a hook that hangs makes the pod undeletable; a startup probe would cost 0.7 s more
    look = ["timeout", "10", "sh", "-c", f"until [ -e {PLUGIN_COMPLETE} ]; do sleep 0.02; done"]
    return {"lifecycle": {"postStart": {"exec": {"command": look}}}}


def _sidecar(meta: Object, spec: ElasticJobSpec, index: int, batch: str, image: SidecarImage) -> Object:
    """A native sidecar: an init container that keeps running, and is stopped after the trainer."""
    values = {
        "ELASTICJOB_JOB": meta["name"],
        JOB_UID: meta["uid"],
        "ELASTICJOB_INDEX": str(index),
        BATCH: batch,
        "ELASTICJOB_STATE_DIR": STATE_PATH,
        "ELASTICJOB_PLUGIN_DIR": PLUGIN_PATH,
        "ELASTICJOB_JOIN_TIMEOUT_SECONDS": str(spec.rendezvous.join_timeout_seconds),
        "ELASTICJOB_STORE_READY_SECONDS": str(spec.rendezvous.store_ready_seconds),
        "ELASTICJOB_SAVE_SECONDS": str(spec.rendezvous.save_seconds),
        "ELASTICJOB_PROCESSES": str(spec.nproc_per_node) if str(spec.nproc_per_node).isdecimal() else "0",
        **_own_ports(spec.host_network),
        **image.environment,
    }
    health = spec.host_network.health_port if spec.host_network else HEALTH_PORT
    fields = {
        "ELASTICJOB_NAMESPACE": "metadata.namespace",
        "ELASTICJOB_POD_NAME": "metadata.name",
        "ELASTICJOB_POD_UID": "metadata.uid",
        "ELASTICJOB_POD_IP": "status.podIP",
        "ELASTICJOB_NODE_NAME": "spec.nodeName",
    }
    return {
        "name": SIDECAR,
        "image": image.name,
        "imagePullPolicy": image.pull_policy,
        "restartPolicy": "Always",
        "env": [{"name": name, "value": value} for name, value in values.items()]
        + [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()],
        "ports": _ports(spec.host_network),
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": health},
            "initialDelaySeconds": ANSWERS_SECONDS,
            "periodSeconds": 1,
            "failureThreshold": UNREADY_SECONDS,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": health},
            "initialDelaySeconds": START_SECONDS,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "resources": image.resources,
        "securityContext": image.security | (spec.sidecar.security_context.dump() if spec.sidecar else {}),
        "volumeMounts": [
            {"name": PLUGIN_VOLUME, "mountPath": PLUGIN_PATH},
            {"name": STATE_VOLUME, "mountPath": STATE_PATH},
            {"name": TOKEN_VOLUME, "mountPath": TOKEN_PATH, "readOnly": True},
        ],
    }


def _own_ports(given: HostNetworkSpec | None) -> dict[str, str]:
    """The port variables for the sidecar of a pod in its node's network. Others have the defaults."""
    if given is None:
        return {}
    return {
        "ELASTICJOB_STORE_PORT": str(given.store_port),
        "ELASTICJOB_TUNNEL_PORT": str(given.tunnel_port),
        "ELASTICJOB_HEALTH_PORT": str(given.health_port),
        "ELASTICJOB_TRAINER_SOCKET": TRAINER_SOCKET,
    }


def _ports(given: HostNetworkSpec | None) -> list[Object]:
    """The ports for the scheduler, which places no two pods with the same host port on one node."""
    if given is None:
        return [{"name": "tunnel", "containerPort": TUNNEL_PORT}, {"name": "health", "containerPort": HEALTH_PORT}]
    ports = {"tunnel": given.tunnel_port, "health": given.health_port, "store": given.store_port}
    return [{"name": name, "containerPort": port, "hostPort": port} for name, port in ports.items()]


def _token_volume() -> Object:
    """The contents of a pod's own service account volume, for the sidecar alone: the trainer gets no token."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}}
    authority = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    namespace = {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}
    return {"name": TOKEN_VOLUME, "projected": {"sources": [token, authority, namespace]}}
