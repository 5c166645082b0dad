# SPDX-License-Identifier: Apache-2.0
"""Requests everything that a scene is made of, and makes independent requests at once.

Objects that the user may not see are left out: `why` then says less, not nothing.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial

from elasticjob.api import GROUP, JOB_LABEL, JOBS
from elasticjob.kube.paths import CLAIMS, EVENTS, PODS, WORKERS
from elasticjob.objects import Object
from elasticjob.reading import Pod
from elasticjob.terms import Outcome
from elasticjob_cli.cluster.connection import Cluster
from elasticjob_cli.cluster.together import Pending, each
from elasticjob_cli.cluster.transport import RequestRefused
from elasticjob_cli.defaults import DEFAULT_LEASE
from elasticjob_cli.reading.scene import Leader, Scene
from elasticjob_cli.reading.times import moment, seconds_between

RENEWED_WITHIN, LOOK_AGAIN_SECONDS, LOOK_SECONDS = 5.0, 3.0, 0.5  # the Lease is renewed each second
KINDS = frozenset({"ElasticJob", "Pod", "PersistentVolumeClaim"})
# the first requests of an operator for a job: verb, group, resource
NEEDS = (
    ("list", GROUP, JOBS),
    ("watch", GROUP, JOBS),
    ("update", GROUP, f"{JOBS}/status"),
    ("list", "", "pods"),
    ("create", "", "pods"),
    ("create", "", "serviceaccounts"),
)


def gather(cluster: Cluster, name: str, lease: str = DEFAULT_LEASE) -> Scene:
    """Everything about the job. Raises CliError if the job itself cannot be read."""
    namespace, _, lease_name = lease.partition("/")
    job = Pending(partial(cluster.job, name))
    pods = Pending(partial(_seen, partial(cluster.pods, name)))
    events = Pending(partial(_seen, cluster.events))
    records = Pending(partial(_seen, partial(cluster.records, name)))
    leads = Pending(partial(cluster.lease, namespace, lease_name))
    body = job.result()
    leader = Pending(partial(leader_of, cluster, body, lease, leads))
    names = sorted({claim for pod in pods.result() or () for claim in Pod.read(pod).claims})
    claims = Pending(partial(_seen, partial(_claims, cluster, names)))
    found = {
        "pods": pods.result(),
        "persistentvolumeclaims": claims.result(),
        "events": events.result(),
        "elasticworkers": records.result(),
    }
    seen = {kind: bodies or [] for kind, bodies in found.items()}
    return Scene(
        job=body,
        pods=tuple(seen["pods"]),
        records=tuple(seen["elasticworkers"]),
        claims=tuple(seen["persistentvolumeclaims"]),
        events=tuple(_chosen(_by_object(seen["events"]), body, seen["pods"], names)),
        leader=leader.result(),
        now=cluster.now,
        hidden=tuple(kind for kind, bodies in found.items() if bodies is None),
    )


def gather_all(cluster: Cluster, lease: str = DEFAULT_LEASE, *, everywhere: bool, selector: str) -> list[Scene]:
    """Everything about the jobs of the namespace, or of all namespaces, in as many requests as for one job. The
    operator's rights are not checked. Raises CliError if the jobs cannot be listed."""
    kinds = {"pods": PODS, "persistentvolumeclaims": CLAIMS, "events": EVENTS, "elasticworkers": WORKERS}
    namespace, _, lease_name = lease.partition("/")
    jobs = Pending(partial(cluster.jobs, everywhere=everywhere, selector=selector))
    leads = Pending(partial(cluster.lease, namespace, lease_name))
    listed = {
        name: Pending(partial(_seen, partial(cluster.of_all_jobs, kind, everywhere=everywhere)))
        for name, kind in kinds.items()
    }
    bodies = jobs.result()
    leader = Leader(lease)
    if running := [job for job in bodies if not _has_ended(job)]:
        leader = leader_of(cluster, running[0], lease, leads, ask_rights=False)
    found = {name: asked.result() for name, asked in listed.items()}
    hidden = tuple(name for name, seen in found.items() if seen is None)
    of_jobs = {name: _by_job(found[name] or ()) for name in ("pods", "elasticworkers")}
    claims = {_key(one, one["metadata"]["name"]): one for one in found["persistentvolumeclaims"] or ()}
    events = _by_object(found["events"] or ())
    scenes = []
    for body in bodies:
        pods = of_jobs["pods"].get(_key(body, body["metadata"]["name"]), [])
        names = sorted({claim for pod in pods for claim in Pod.read(pod).claims})
        scene = Scene(
            job=body,
            pods=tuple(pods),
            records=tuple(of_jobs["elasticworkers"].get(_key(body, body["metadata"]["name"]), ())),
            claims=tuple(claims[key] for name in names if (key := _key(body, name)) in claims),
            events=tuple(_chosen(events, body, pods, names)),
            leader=leader,
            now=cluster.now,
            hidden=hidden,
        )
        scenes.append(scene)
    return scenes


def _key(body: Object, name: str) -> tuple[str, str]:
    return body["metadata"]["namespace"], name


def _by_job(bodies: Iterable[Object]) -> dict[tuple[str, str], list[Object]]:
    found: dict[tuple[str, str], list[Object]] = {}
    for body in bodies:
        found.setdefault(_key(body, body["metadata"].get("labels", {}).get(JOB_LABEL, "")), []).append(body)
    return found


def _chosen(
    events: dict[tuple[str, ...], list[Object]], job: Object, pods: Iterable[Object], claims: Iterable[str]
) -> list[Object]:
    """The events of the job, of its pods and of the claims with these names."""
    about: list[tuple[str, ...]] = [("", one["metadata"]["uid"]) for one in (job, *pods)]
    about += [("PersistentVolumeClaim", *_key(job, name)) for name in claims]
    return [event for key in about for event in events.get(key, ())]


def _by_object(events: Iterable[Object]) -> dict[tuple[str, ...], list[Object]]:
    """The events by the uid of their object, after an empty text; those of claims by kind, namespace and name."""
    found: dict[tuple[str, ...], list[Object]] = {}
    for event in events:
        about = event["involvedObject"]
        if about.get("kind") == "PersistentVolumeClaim":
            found.setdefault(("PersistentVolumeClaim", *_key(event, about.get("name", ""))), []).append(event)
        elif about.get("kind") in KINDS:
            found.setdefault(("", about.get("uid", "")), []).append(event)
    return found


def _seen(ask: Callable[[], list[Object]]) -> list[Object] | None:
    """The answer; None if the user may not see it."""
    try:
        return ask()
    except RequestRefused as error:
        if error.status != 403:
            raise
        return None


def leader_of(cluster: Cluster, job: Object, lease: str, asked: Pending[Object], *, ask_rights: bool = True) -> Leader:
    """Which operator leads. A Lease that seems outdated may come from a wrong clock, so it is read again, unless the
    job has ended and needs no operator."""
    namespace, _, name = lease.partition("/")
    try:
        found = asked.result()
        beats = _is_new(found, cluster.now)
        if not beats and found.get("spec", {}).get("holderIdentity") and not _has_ended(job):
            beats, found = _is_renewed(cluster, found, namespace, name)
    except RequestRefused as error:
        return Leader(lease, readable=error.status == 404)
    behind = job.get("status", {}).get("observedGeneration") != job["metadata"].get("generation")
    lacks = _lacks(cluster, namespace, found) if ask_rights and beats and behind else None
    return Leader(lease, readable=True, lease=found, beats=beats, lacks=lacks)


def _is_renewed(cluster: Cluster, before: Object, namespace: str, name: str) -> tuple[bool, Object]:
    """Whether the Lease changes within three seconds, and the Lease as last read."""
    until = time.monotonic() + LOOK_AGAIN_SECONDS
    while True:
        time.sleep(LOOK_SECONDS)
        found = cluster.lease(namespace, name)
        if found["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            return True, found
        if time.monotonic() >= until:
            return False, found


def _has_ended(job: Object) -> bool:
    return job.get("status", {}).get("rendezvous", {}).get("outcome") not in (None, Outcome.CLOSED)


def _is_new(lease: Object, now: datetime) -> bool:
    spec = lease.get("spec", {})
    age = seconds_between(moment(spec.get("renewTime")), now)
    return bool(spec.get("holderIdentity")) and age is not None and age < RENEWED_WITHIN


def _lacks(cluster: Cluster, namespace: str, lease: Object) -> tuple[str, ...] | None:
    """The rights that the leader lacks, by its pod's service account. None if the user may not ask."""
    try:
        pod = cluster.pod(namespace, lease["spec"]["holderIdentity"])
        user = f"system:serviceaccount:{namespace}:{pod['spec']['serviceAccountName']}"
        allowed = each(lambda need: cluster.may(user, *need), NEEDS)
        return tuple(f"{verb} {what}" for (verb, _, what), may in zip(NEEDS, allowed, strict=True) if not may)
    except RequestRefused:
        return None


def _claims(cluster: Cluster, names: Sequence[str]) -> list[Object]:
    """The claims with these names that exist."""

    def claim(name: str) -> Object | None:
        try:
            return cluster.claim(name)
        except RequestRefused as error:
            if error.status != 404:
                raise
            return None

    return [found for found in each(claim, names) if found is not None]
