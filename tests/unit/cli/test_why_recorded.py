# SPDX-License-Identifier: Apache-2.0
"""`why` on what a real API server and a real cluster showed: tests/e2e/test_cli.py and tests/api/test_cli.py made each
situation and kept it (`RECORD_SCENES=1`)."""

import pytest

from elasticjob.blocker_reasons import REMEDIES, Reason
from elasticjob_cli.why.answer import why
from elasticjob_cli.why.rows import LocalReason
from elasticjob_cli.why.table import OF_JOB, OF_WORKER
from support.scenes import FOLDER, load

# by scene: its cause, and what the paragraph says of it
TOLD = {
    "no-pod": (Reason.POD_MISSING, "which has no pod yet: it is about to be made. "),
    "starting": (Reason.POD_STARTING, "whose pod is starting: its init container wait runs for "),
    "sandbox": (LocalReason.SANDBOX, "whose pod the node cannot set up: Failed to create pod sandbox: "),
    "credentials": (LocalReason.PULL_SECRET, "authorization failed: no basic auth credentials. Make the Secret "),
    "back-off": (
        Reason.POD_BACK_OFF,
        "which has no pod: its pods failed 2 times in a row: its pod failed (SysctlForbidden: ",
    ),
    "access": (Reason.ACCESS_REFUSED, "Its workers have no access: the Role "),
    "claim-missing": (
        Reason.CLAIM_NOT_READY,
        "It waits for worker 0, whose pod waits for a volume: there is no PersistentVolumeClaim no-such-claim. ",
    ),
    "claim-unbound": (
        Reason.CLAIM_NOT_READY,
        'the PersistentVolumeClaim unbound is Pending: storageclass.storage.k8s.io "of-tomorrow" not found. ',
    ),
    "closed": (LocalReason.CLOSED, "Its rendezvous is closed: closed by worker 0; the round trains on to its end. "),
    "complete": (LocalReason.COMPLETE, "It is complete: all workers of the last round finished (1 in all)."),
    "config": (
        Reason.CONFIG_MISSING,
        'whose container refers to a missing object: CreateContainerConfigError: secret "no-such',
    ),
    "container-error": (Reason.CONTAINER_ERROR, 'exec: "/nowhere": stat /nowhere: no such file or directory'),
    "crash-loop": (
        Reason.TRAINER_CRASHES,
        "It waits for worker 0, whose trainer crashes before it joins: started again ",
    ),
    "failed": (
        LocalReason.FAILED,
        "It has failed: worker 0: its trainer ended with exit code 0 without joining a round: ",
    ),
    "finishing": (
        Reason.FINISHING,
        "Round 1 (1 worker) has ended in success. It waits for containers: torchrun has ended in success in worker 0, "
        "and the container of worker 0 goes on, until 2026-",
    ),
    "container-failed": (
        Reason.CONTAINER_FAILED,
        "A container fails after success: worker 0's container failed after its torchrun had ended in success (exit ",
    ),
    "between-stages": (
        Reason.FINISHING,
        "It waits for worker 1, whose next torchrun has not begun: that of stage 1 has ended in success. See what ",
    ),
    "scripts-differ": (
        LocalReason.FAILED,
        "It has failed: worker 1 runs other.py as its torchrun, and worker 0 runs train.py: the containers of all ",
    ),
    "full-size": (None, "Round 2 trains at full size, with 2 workers; it formed "),
    "gate": (Reason.SCHEDULING_GATED, "whose pod has scheduling gates: example.com/queue. "),
    "host-network": (Reason.TEMPLATE_INVALID, "spec.template.spec.hostNetwork must be left out"),
    "queue": (
        Reason.QUOTA_PENDING,
        "which waits for quota: in the queue gpus. Its queue has no room: ",
    ),
    "image": (Reason.IMAGE_PULL, "whose image cannot be pulled: "),
    "init-crashes": (Reason.INIT_CRASHES, "because an init container fails: started again "),
    "invalid-record": (Reason.INVALID_RECORD, "whose ElasticWorker is invalid: spec.address is 10.255.255.1:27601"),
    "last-call": (LocalReason.NO_TORCHRUN, "It goes on with 1 of 2 in "),
    "managed": (
        LocalReason.MANAGED,
        "spec.managedBy is kueue.x-k8s.io/multikueue, so ElasticJob's operator makes no pods",
    ),
    "name-taken": (Reason.NAME_TAKEN, "A pod cannot be made: there is a pod job-"),
    "no-leader": (LocalReason.NO_OPERATOR, "No operator leads: nobody holds the Lease default/lease-"),
    "no-operator": (LocalReason.NO_OPERATOR, "No operator leads: test has not renewed the Lease default/lease-"),
    "no-scheduler": (LocalReason.NO_SCHEDULER, "It waits for worker 0, whose pod no scheduler has placed for "),
    "one-short": (Reason.TRAINER_CRASHES, "It trains without worker 1, whose trainer crashes before it joins: "),
    "policy": (
        Reason.ADMISSION_REFUSED,
        "The cluster refuses a pod: ValidatingAdmissionPolicy 'days' with binding 'days' denied",
    ),
    "pull-secret": (
        LocalReason.PULL_SECRET,
        "Unable to retrieve some image pull secrets (no-such-secret). Make the Secret ",
    ),
    "quota": (
        Reason.QUOTA_EXCEEDED,
        "A quota of the namespace refuses a pod: exceeded quota: full, requested: pods=1, ",
    ),
    "rights-lacking": (
        Reason.OPERATOR_WITHOUT_RIGHTS,
        "it may not list elasticjobs, watch elasticjobs, update elasticjobs/status, ",
    ),
    "rights-refused": (
        Reason.OPERATOR_WITHOUT_RIGHTS,
        'does nothing for this job: pods is forbidden: User "system:serviceaccount:default:limited" cannot create ',
    ),
    "slow-joiner": (LocalReason.NO_TORCHRUN, "It waits for worker 1, whose trainer has run for "),
    "storeless": (LocalReason.STORELESS, "ended because rank 0 served no store: worker "),
    "suspended": (
        LocalReason.SUSPENDED,
        "It is suspended: spec.suspend is true. `kubectl elasticjob resume` resumes it.",
    ),
    "template-invalid": (Reason.TEMPLATE_INVALID, "spec.template has no container named 'trainer' (it has: main)"),
    "unschedulable": (
        Reason.UNSCHEDULABLE,
        "It waits for worker 0, whose pod is pending: 0/3 nodes are available: 1 Insufficient cpu, ",
    ),
    "volume": (LocalReason.VOLUME, 'MountVolume.SetUp failed for volume "data" : configmap "no-such-map" not found. '),
    "webhook": (
        Reason.ADMISSION_REFUSED,
        'The cluster refuses a pod: Internal error occurred: failed calling webhook "broken',
    ),
}
# rows whose situation no test makes in a cluster: test_why.py has them on paper. Who is silent while no round stands is
# missed after minutes, and a round that stands, in which it is noticed in seconds, has nobody missing
ON_PAPER = {
    LocalReason.POLICY,  # test_why
    LocalReason.DELETED,
    LocalReason.TWO_INSTALLATIONS,
    Reason.SIDECAR_CRASHES,
    Reason.SIDECAR_NOT_READY,
    LocalReason.SILENT,
    LocalReason.STOPPING,
    LocalReason.SLOW_JOINER,
    Reason.NETWORK_FAULT,
    Reason.HUNG,
    LocalReason.GANG_REFUSED,
    Reason.DEVICE_UNHEALTHY,
    Reason.NODE_DRAINING,
    LocalReason.GANG,
    LocalReason.QUEUED_TWICE,
    Reason.DRAIN_GRACE_OVER,
    Reason.BUDGET_REFUSED,
}


@pytest.mark.parametrize("name", TOLD)
def test_a_cause_is_named_by_what_the_cluster_showed(name: str) -> None:
    cause, sentence = TOLD[name]
    reply = why(load(name))
    assert sentence in reply.paragraph
    found = [one.reason for one in reply.causes]
    if name == "storeless":  # its pod is replaced; the other's heartbeat is a little younger
        found = found[:1]
    if name == "between-stages":  # of the job, and of the worker
        found = sorted(set(found))
    assert found == ([cause] if cause else [])
    assert reply.full is (cause is None)


@pytest.mark.parametrize("name", TOLD)
def test_a_recorded_remedy_is_the_present_one(name: str) -> None:
    blockers = load(name).job.get("status", {}).get("blockers", [])
    told = {one["reason"]: one["remedy"] for one in blockers if "remedy" in one}
    assert told == {reason: REMEDIES[reason] for reason in told}


def test_every_row_of_the_table_has_been_seen_or_is_known_not_to_be() -> None:
    rows = {row.reason for row in (*OF_JOB, *OF_WORKER)}
    assert rows == {cause for cause, _ in TOLD.values() if cause} | ON_PAPER
    assert {path.stem for path in FOLDER.glob("*.json")} == set(TOLD)


def test_every_reason_is_a_row() -> None:
    """`Forming` and its like say of a round what the rows say of each worker."""
    round_forms = {Reason.FORMING, Reason.INSUFFICIENT_MEMBERS, Reason.NOT_JOINED}
    assert {row.reason for row in (*OF_JOB, *OF_WORKER)} == {*LocalReason, *Reason} - round_forms
