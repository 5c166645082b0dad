# SPDX-License-Identifier: Apache-2.0
"""Asks for all that a scene is made of. What this user may not see is left out: `why` then says less, not nothing."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime

from elasticjob.api import GROUP, JOBS
from elasticjob.objects import Object
from elasticjob.reading import Pod
from elasticjob_cli.cluster.connection import ApiError, Cluster
from elasticjob_cli.reading.scene import Leader, Scene
from elasticjob_cli.reading.times import moment, seconds_between

DEFAULT_LEASE = "elasticjob-system/elasticjob-operator"
RENEWED_WITHIN, LOOK_AGAIN_SECONDS = 5.0, 3.0  # it is renewed each second
KINDS = frozenset({"ElasticJob", "Pod", "PersistentVolumeClaim"})
# what an operator does first for a job: verb, group, resource
NEEDS = (
    ("list", GROUP, JOBS),
    ("watch", GROUP, JOBS),
    ("update", GROUP, f"{JOBS}/status"),
    ("list", "", "pods"),
    ("create", "", "pods"),
    ("create", "", "serviceaccounts"),
)


def gather(cluster: Cluster, name: str, lease: str = DEFAULT_LEASE) -> Scene:
    """All about the job. Raises CliError where the job itself cannot be read."""
    job, hidden = cluster.job(name), []

    def seen(kind: str, ask: Callable[[], list[Object]]) -> list[Object]:
        try:
            return ask()
        except ApiError as error:
            if error.status != 403:
                raise
            hidden.append(kind)
            return []

    pods = seen("pods", lambda: cluster.pods(name))
    names = sorted({claim for pod in pods for claim in Pod.read(pod).claims})
    claims = seen("persistentvolumeclaims", lambda: _claims(cluster, names))
    events = _of(seen("events", cluster.events), [job, *pods], names)
    records = seen("elasticworkers", lambda: cluster.records(name))
    leader = leader_of(cluster, job, lease)
    return Scene(
        job=job,
        pods=tuple(pods),
        records=tuple(records),
        claims=tuple(claims),
        events=tuple(events),
        leader=leader,
        now=cluster.now,
        hidden=tuple(hidden),
    )


def leader_of(cluster: Cluster, job: Object, lease: str) -> Leader:
    """Who leads. A Lease whose time is old may be that of a clock that is wrong, so it is looked at twice."""
    namespace, _, name = lease.partition("/")
    try:
        found = cluster.lease(namespace, name)
        beats = _is_new(found, cluster.now)
        if not beats and found.get("spec", {}).get("holderIdentity"):
            time.sleep(LOOK_AGAIN_SECONDS)
            before, found = found, cluster.lease(namespace, name)
            beats = found["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    except ApiError as error:
        return Leader(lease, readable=error.status == 404)
    behind = job.get("status", {}).get("observedGeneration") != job["metadata"].get("generation")
    lacks = _lacks(cluster, namespace, found) if beats and behind else None
    return Leader(lease, readable=True, lease=found, beats=beats, lacks=lacks)


def _is_new(lease: Object, now: datetime) -> bool:
    spec = lease.get("spec", {})
    age = seconds_between(moment(spec.get("renewTime")), now)
    return bool(spec.get("holderIdentity")) and age is not None and age < RENEWED_WITHIN


def _lacks(cluster: Cluster, namespace: str, lease: Object) -> tuple[str, ...] | None:
    """What the leader may not do, by its pod's service account; None where this user may not ask."""
    try:
        pod = cluster.pod(namespace, lease["spec"]["holderIdentity"])
        user = f"system:serviceaccount:{namespace}:{pod['spec']['serviceAccountName']}"
        return tuple(f"{verb} {what}" for verb, group, what in NEEDS if not cluster.may(user, verb, group, what))
    except ApiError:
        return None


def _of(events: Iterable[Object], owners: Iterable[Object], claims: Iterable[str]) -> list[Object]:
    """Those of these objects, by UID, and of the claims of these names."""
    uids, names = {owner["metadata"]["uid"] for owner in owners}, set(claims)
    found = []
    for event in events:
        about = event["involvedObject"]
        if about.get("kind") in KINDS and (
            about.get("uid") in uids or (about["kind"] == "PersistentVolumeClaim" and about.get("name") in names)
        ):
            found.append(event)
    return found


def _claims(cluster: Cluster, names: Iterable[str]) -> list[Object]:
    """Those that are there."""
    found = []
    for name in names:
        try:
            found.append(cluster.claim(name))
        except ApiError as error:
            if error.status != 404:
                raise
    return found
