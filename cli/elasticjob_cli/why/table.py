# SPDX-License-Identifier: Apache-2.0
"""The rules that determine a cause, as one table: the first row whose test returns a message is the cause.

The rows of the job come first. One that `covers` excludes the rows of its workers. Each missing worker then has the
first of the workers' rows that holds. In a sentence, `{message}` is the result of the test; `{s}`, `{have}` and so on
depend on whether it is about one worker or several.
"""

from elasticjob.blocker_reasons import GANG_PENDING, GANG_REFUSED, Reason
from elasticjob_cli.why import job_causes as job
from elasticjob_cli.why import pod_causes as pod
from elasticjob_cli.why.rows import JobRow, LocalReason, WorkerRow


def _reported(reason: Reason, sentence: str, *, covers: bool = False) -> JobRow:
    """The row of a cause that the operator reports."""
    return JobRow(reason, lambda look: look.blocker_message(reason), sentence, covers=covers)


OF_JOB = (
    JobRow(
        LocalReason.DELETED,
        job.being_deleted,
        "It is being deleted: {message}.",
        "The operator does nothing more for it, and no longer updates its status.",
    ),
    JobRow(LocalReason.COMPLETE, job.complete, "It is complete: {message}."),
    JobRow(
        LocalReason.POLICY,
        job.failed_by_policy,
        "It has failed without another try: {message}.",
        "Fix the cause and create a new job, or change the rule.",
    ),
    JobRow(LocalReason.FAILED, job.failed, "It has failed: {message}.", "Fix the cause and create a new job."),
    JobRow(
        LocalReason.MANAGED,
        job.managed_elsewhere,
        "Another controller manages it: {message}.",
        "Ask that controller. spec.managedBy cannot be changed: create a new job for ElasticJob's operator to run it.",
    ),
    JobRow(
        LocalReason.TWO_INSTALLATIONS,
        job.two_installations,
        "Two operators want to run it: {message}.",
        "If the first is uninstalled, the other takes over ten minutes after the job has stopped changing, or at once "
        "when its own pods are restarted.",
        covers=False,
    ),
    JobRow(
        LocalReason.NO_OPERATOR,
        job.no_operator,
        "No operator leads: {message}.",
        "Until one does, no worker is replaced and no round is formed: see that its pods run, or install the chart.",
    ),
    JobRow(Reason.OPERATOR_WITHOUT_RIGHTS, job.no_rights, "The operator does nothing for this job: {message}."),
    JobRow(
        LocalReason.CLOSED,
        job.closed,
        "Its rendezvous is closed: {message}.",
        "This job accepts no more workers. Create a new job to change its size.",
    ),
    JobRow(Reason.TEMPLATE_INVALID, job.template_invalid, "No pod can be made from its template: {message}."),
    JobRow(
        LocalReason.SUSPENDED, job.suspended, "It is suspended: {message}.", "`kubectl elasticjob resume` resumes it."
    ),
    JobRow(LocalReason.GANG_REFUSED, job.gang_refused, "Kueue does not admit all of it: {message}.", GANG_REFUSED),
    JobRow(LocalReason.GANG, job.gang_waits, "Kueue has not admitted all of it: {message}.", GANG_PENDING),
    _reported(Reason.ACCESS_REFUSED, "Its workers have no access: {message}.", covers=True),
    _reported(Reason.NAME_TAKEN, "A pod cannot be made: {message}."),
    _reported(Reason.QUOTA_EXCEEDED, "A quota of the namespace refuses a pod: {message}."),
    _reported(Reason.ADMISSION_REFUSED, "The cluster refuses a pod: {message}."),
    JobRow(
        LocalReason.STORELESS,
        job.storeless_rank_0,
        "The last round ended because rank 0 served no store: {message}.",
        "See its log: the script, or torchrun itself, is stuck before training begins.",
        covers=False,
    ),
    _reported(Reason.CONTAINER_FAILED, "A container fails after success: {message}."),
    JobRow(Reason.FINISHING, job.finishing, "It waits for containers: {message}.", covers=False),
    JobRow(Reason.NETWORK_FAULT, job.network_fault, "Its pods cannot reach each other: {message}.", covers=False),
    JobRow(
        Reason.SIDECAR_NOT_READY,
        job.sidecars_not_ready,
        "Sidecars are refused or cut off by the API server: {message}.",
        "They try again at least every three seconds; until one succeeds, its worker cannot join a round.",
        covers=False,
    ),
    JobRow(Reason.HUNG, job.no_steps, "The training hangs: {message}.", covers=False),
    JobRow(Reason.DEVICE_UNHEALTHY, job.device_unhealthy, "A device is unhealthy: {message}.", covers=False),
    JobRow(Reason.NODE_DRAINING, job.node_draining, "A node is draining: {message}.", covers=False),
    _reported(Reason.DRAIN_GRACE_OVER, "The grace period of a drain is over: {message}."),
    _reported(Reason.BUDGET_REFUSED, "Its PodDisruptionBudget cannot be made: {message}."),
)

OF_WORKER = (
    WorkerRow(Reason.INVALID_RECORD, pod.invalid_record, "whose ElasticWorker{s} {be} invalid: {message}"),
    WorkerRow(
        LocalReason.STORELESS,
        pod.held_back_storeless,
        "which {have} no pod: {message}",
        "As rank 0 it served no store: see its log. The pause before each new pod grows, to 300 s at most.",
    ),
    WorkerRow(Reason.POD_BACK_OFF, pod.held_back, "which {have} no pod: {message}"),
    WorkerRow(Reason.POD_MISSING, pod.no_pod, "which {have} no pod yet: {message}"),
    WorkerRow(
        LocalReason.QUEUED_TWICE,
        pod.queued_twice,
        "which Kueue holds back though the gang has quota: {message}",
        "Rename that LocalQueue if its name is default, because it takes all pods of its namespace; or use "
        "`quotaAdmission: Pods`.",
        stuck=True,
    ),
    WorkerRow(Reason.QUOTA_PENDING, pod.kept_by(Reason.QUOTA_PENDING), "which {wait} for quota: {message}", stuck=True),
    WorkerRow(Reason.SCHEDULING_GATED, pod.gated, "whose pod{s} {have} scheduling gates: {message}", stuck=True),
    WorkerRow(Reason.CLAIM_NOT_READY, pod.claim_not_ready, "whose pod{s} {wait} for a volume: {message}", stuck=True),
    WorkerRow(
        Reason.UNSCHEDULABLE,
        pod.avoiding,
        "whose pod{s} {be} pending and excluded from nodes: {message}",
        "Make room on other nodes or add some, or unset `avoidNodes.required`.",
        stuck=True,
    ),
    WorkerRow(Reason.UNSCHEDULABLE, pod.unschedulable, "whose pod{s} {be} pending: {message}", stuck=True),
    WorkerRow(
        LocalReason.PULL_SECRET,
        pod.pull_secret,
        "whose image the registry refuses to {this} pod{s}: {message}",
        "Make the Secret that imagePullSecrets names, or name one with the registry's credentials.",
        stuck=True,
    ),
    WorkerRow(
        Reason.IMAGE_PULL, pod.at_fault(Reason.IMAGE_PULL), "whose image cannot be pulled: {message}", stuck=True
    ),
    WorkerRow(
        Reason.CONFIG_MISSING,
        pod.at_fault(Reason.CONFIG_MISSING),
        "whose container{s} refer{v} to a missing object: {message}",
        stuck=True,
    ),
    WorkerRow(
        Reason.CONTAINER_ERROR, pod.container_error, "whose container{s} cannot be started: {message}", stuck=True
    ),
    WorkerRow(
        Reason.INIT_CRASHES,
        pod.init_crashes,
        "whose pod{s} cannot start because an init container fails: {message}",
        stuck=True,
    ),
    WorkerRow(
        Reason.SIDECAR_CRASHES,
        pod.sidecar_crashes,
        "whose sidecar{s} crash{es}: {message}",
        "See its log: `kubectl logs --container elasticjob-sidecar --previous`.",
        stuck=True,
    ),
    WorkerRow(
        Reason.SIDECAR_CRASHES, pod.kept_by(Reason.SIDECAR_CRASHES), "whose pod{s} cannot start: {message}", stuck=True
    ),
    WorkerRow(
        Reason.SIDECAR_NOT_READY,
        pod.sidecar_not_ready,
        "whose sidecar{s} {have} run for {message} and {be} not ready",
        "The condition SidecarsReady says why, and so does the log: `kubectl logs --container elasticjob-sidecar`.",
    ),
    WorkerRow(
        Reason.TRAINER_CRASHES,
        pod.trainer_crashes,
        "whose trainer{s} crash{es} before {it} join{v}: {message}",
        stuck=True,
    ),
    WorkerRow(
        LocalReason.VOLUME,
        pod.volume,
        "whose pod{s} cannot mount a volume: {message}",
        "Create the object that the volume refers to.",
    ),
    WorkerRow(
        LocalReason.SANDBOX,
        pod.sandbox,
        "whose pod{s} the node cannot set up: {message}",
        "See the node's network plug-in and container runtime, and runtimeClassName in the template.",
    ),
    WorkerRow(
        LocalReason.NO_SCHEDULER,
        pod.no_scheduler,
        "whose pod{s} no scheduler has placed for {message}",
        "If it lasts, see whether the scheduler that the template names runs.",
    ),
    WorkerRow(Reason.POD_STARTING, pod.starting, "whose pod{s} {be} starting: {message}"),
    WorkerRow(
        LocalReason.STORELESS,
        pod.storeless,
        "which served no store as rank 0: {message}",
        "See its log; its pod is replaced.",
    ),
    WorkerRow(
        Reason.FINISHING,
        pod.between_stages,
        "whose next torchrun has not begun: {message}",
        "See what the command does between its torchruns.",
    ),
    WorkerRow(
        LocalReason.SILENT,
        pod.silent,
        "which {have} been silent for {message}",
        "It is replaced once it counts as lost: see whether its node still exists.",
    ),
    WorkerRow(
        LocalReason.STOPPING,
        pod.stopping,
        "which {have} been stopping the processes of the last round for {message}",
        "A worker that has not joined again after rejoinSeconds is replaced.",
    ),
    WorkerRow(
        LocalReason.NO_TORCHRUN,
        pod.no_torchrun,
        "whose trainer{s} {have} run for {message}",
        "If it lasts, see the log: torchrun has to be started in the environment of its container, which `su -`, "
        "`sudo`, ssh and `env -i` drop, and with no rendezvous of its own; another launcher trains alone.",
    ),
    WorkerRow(
        LocalReason.SLOW_JOINER,
        pod.slow_joiner,
        "whose trainer{s} {have} run for {message} and not joined yet",
        "Importing torch takes a while; if it lasts, see its log.",
    ),
)
