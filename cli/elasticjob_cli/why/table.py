# SPDX-License-Identifier: Apache-2.0
"""The rules that determine a cause, as one table: the first row whose test returns a message is the cause.

The rows of the job come first. One that `covers` excludes the rows of its workers. Each missing worker then has the
first of the workers' rows that holds. In a sentence, `{said}` is the result of the test; `{s}`, `{have}` and the like
depend on whether it is about one worker or several.
"""

from elasticjob.blocker_reasons import BUDGET_REFUSED, CONTAINER_FAILED, DRAIN_GRACE_OVER, Reason
from elasticjob_cli.why import job_causes as job
from elasticjob_cli.why import pod_causes as pod
from elasticjob_cli.why.causes import Cause
from elasticjob_cli.why.rows import JobRow, WorkerRow

OF_JOB = (
    JobRow(
        Cause.DELETED,
        job.being_deleted,
        "It is being deleted: {said}.",
        "The operator does nothing more for it, and no longer updates its status.",
    ),
    JobRow(Cause.COMPLETE, job.complete, "It is complete: {said}."),
    JobRow(
        Cause.POLICY,
        job.failed_by_policy,
        "It has failed without another try: {said}.",
        "Fix the cause and create a new job, or change the rule.",
    ),
    JobRow(Cause.FAILED, job.failed, "It has failed: {said}.", "Fix the cause and create a new job."),
    JobRow(
        Cause.MANAGED,
        job.managed_elsewhere,
        "Another controller manages it: {said}.",
        "Ask that controller. spec.managedBy cannot be changed: create a new job for ElasticJob's operator to run it.",
    ),
    JobRow(
        Cause.TWO_INSTALLATIONS,
        job.two_installations,
        "Two operators want to run it: {said}.",
        "If the first is uninstalled, the other takes over ten minutes after the job has stopped changing, or at once "
        "when its own pods are restarted.",
        covers=False,
    ),
    JobRow(
        Cause.NO_OPERATOR,
        job.no_operator,
        "No operator leads: {said}.",
        "Until one does, no worker is replaced and no round is formed: see that its pods run, or install the chart.",
    ),
    JobRow(
        Cause.NO_RIGHTS,
        job.no_rights,
        "The operator does nothing for this job: {said}.",
        "See the chart's value `namespaces`, its ClusterRole and the bindings; the operator's log says the same.",
    ),
    JobRow(
        Cause.CLOSED,
        job.closed,
        "Its rendezvous is closed: {said}.",
        "This job accepts no more workers. Create a new job to change its size.",
    ),
    JobRow(Cause.TEMPLATE_INVALID, job.template_invalid, "No pod can be made from its template: {said}."),
    JobRow(Cause.SUSPENDED, job.suspended, "It is suspended: {said}.", "`kubectl elasticjob resume` resumes it."),
    JobRow(
        Cause.GANG_REFUSED,
        job.gang_refused,
        "Kueue does not admit all of it: {said}.",
        "Fix what is named; the operator tries again after 160 s at the latest.",
    ),
    JobRow(
        Cause.GANG,
        job.gang_waits,
        "Kueue has not admitted all of it: {said}.",
        "It continues by itself when its queue has room; `kubectl get workloads` shows who holds how much.",
    ),
    JobRow(Cause.ACCESS_REFUSED, job.told(Reason.ACCESS_REFUSED), "Its workers have no access: {said}."),
    JobRow(Cause.NAME_TAKEN, job.told(Reason.NAME_TAKEN), "A pod cannot be made: {said}.", covers=False),
    JobRow(
        Cause.QUOTA,
        job.told(Reason.QUOTA_EXCEEDED),
        "A quota of the namespace refuses a pod: {said}.",
        "Make room in the quota, or scale the job down; the operator tries again after 160 s at the latest.",
        covers=False,
    ),
    JobRow(
        Cause.ADMISSION,
        job.told(Reason.ADMISSION_REFUSED),
        "The cluster refuses a pod: {said}.",
        "Change the template, or what refuses it; the operator tries again after 160 s at the latest.",
        covers=False,
    ),
    JobRow(
        Cause.STORELESS,
        job.storeless_rank_0,
        "The last round ended because rank 0 served no store: {said}.",
        "See its log: the script, or torchrun itself, is stuck before training begins.",
        covers=False,
    ),
    JobRow(
        Cause.CONTAINER_FAILED,
        job.told(CONTAINER_FAILED),
        "A container fails after success: {said}.",
        "See what its command does after torchrun, and its log: `kubectl logs --previous`.",
        covers=False,
    ),
    JobRow(
        Cause.FINISHING,
        job.finishing,
        "It waits for containers: {said}.",
        "Their logs say what their commands do after torchrun, such as an upload. If that takes longer, raise "
        "`finishSeconds`.",
        covers=False,
    ),
    JobRow(
        Cause.NETWORK,
        job.network_fault,
        "Its pods cannot reach each other: {said}.",
        "Let the job's pods reach each other at that port: see the namespace's NetworkPolicies, and firewalls or "
        "security groups between the nodes; the log of the named pod's sidecar says how it fails. While it "
        "lasts, no worker is replaced for it and failures do not count.",
        covers=False,
    ),
    JobRow(
        Cause.SIDECAR_NOT_READY,
        job.sidecars_not_ready,
        "Sidecars are refused or cut off by the API server: {said}.",
        "They try again at least every three seconds; until one succeeds, its worker cannot join a round.",
        covers=False,
    ),
    JobRow(
        Cause.NO_STEPS,
        job.no_steps,
        "The training hangs: {said}.",
        "The trainers' logs have the Python stacks of all its processes. With `hangPolicy: Restart` such a round is "
        "restarted.",
        covers=False,
    ),
    JobRow(
        Cause.DEVICE_UNHEALTHY,
        job.device_unhealthy,
        "A device is unhealthy: {said}.",
        "Another worker starts with other devices and takes over in one planned round. The log of the device plugin or "
        "DRA driver on that node says more.",
        covers=False,
    ),
    JobRow(
        Cause.NODE_DRAINING,
        job.node_draining,
        "A node is draining: {said}.",
        "Replacements start on other nodes and take over in one planned round; evictions wait for them, for "
        "drain.graceSeconds at most.",
        covers=False,
    ),
    JobRow(
        Cause.DRAIN_GRACE_OVER,
        job.told(DRAIN_GRACE_OVER),
        "The grace period of a drain is over: {said}.",
        "If replacements take longer, raise `drain.graceSeconds`.",
        covers=False,
    ),
    JobRow(
        Cause.BUDGET_REFUSED, job.told(BUDGET_REFUSED), "Its PodDisruptionBudget cannot be made: {said}.", covers=False
    ),
)

OF_WORKER = (
    WorkerRow(
        Cause.INVALID_RECORD,
        pod.invalid_record,
        "whose ElasticWorker{s} {be} invalid: {said}",
        "The worker is replaced after 15 s, or workerLostSeconds if that is more; see who else writes ElasticWorkers.",
    ),
    WorkerRow(
        Cause.STORELESS,
        pod.held_back_storeless,
        "which {have} no pod: {said}",
        "As rank 0 it served no store: see its log. The pause before each new pod grows, to 300 s at most.",
    ),
    WorkerRow(
        Cause.BACK_OFF,
        pod.held_back,
        "which {have} no pod: {said}",
        "The pause before each new pod grows, to 300 s at most.",
    ),
    WorkerRow(Cause.NO_POD, pod.no_pod, "which {have} no pod yet: {said}"),
    WorkerRow(
        Cause.QUEUED_TWICE,
        pod.queued_twice,
        "which Kueue holds back though the gang has quota: {said}",
        "Rename that LocalQueue if it is default, because it takes all pods of its namespace; or use "
        "`quotaAdmission: Pods`.",
        stuck=True,
    ),
    WorkerRow(
        Cause.QUEUED,
        pod.kept_by(Reason.QUOTA_PENDING),
        "which {wait} for quota: {said}",
        "Its queue has no room: `kubectl describe workloads.kueue.x-k8s.io` says what is missing.",
        stuck=True,
    ),
    WorkerRow(
        Cause.GATED,
        pod.gated,
        "whose pod{s} {have} scheduling gates: {said}",
        "The controller that set the gates removes them, as a queue does when it has quota.",
        stuck=True,
    ),
    WorkerRow(
        Cause.CLAIM,
        pod.claim_not_ready,
        "whose pod{s} {wait} for a volume: {said}",
        "Make the PersistentVolumeClaim, or see `kubectl describe pvc` for why it is not bound.",
        stuck=True,
    ),
    WorkerRow(
        Cause.UNSCHEDULABLE,
        pod.avoiding,
        "whose pod{s} {be} pending and kept off nodes: {said}",
        "Make room on other nodes or add some, or unset `avoidNodes.required`.",
        stuck=True,
    ),
    WorkerRow(
        Cause.UNSCHEDULABLE,
        pod.unschedulable,
        "whose pod{s} {be} pending: {said}",
        "Make room or add nodes, or request less in the template.",
        stuck=True,
    ),
    WorkerRow(
        Cause.PULL_SECRET,
        pod.pull_secret,
        "whose image the registry refuses to {this} pod{s}: {said}",
        "Make the Secret that imagePullSecrets names, or name one with the registry's credentials.",
        stuck=True,
    ),
    WorkerRow(
        Cause.IMAGE,
        pod.at_fault(Reason.IMAGE_PULL),
        "whose image cannot be pulled: {said}",
        "Name an image that the nodes can pull.",
        stuck=True,
    ),
    WorkerRow(
        Cause.CONFIG,
        pod.at_fault(Reason.CONFIG_MISSING),
        "whose container{s} refer{v} to a missing object: {said}",
        "Make it, or change the reference in the template.",
        stuck=True,
    ),
    WorkerRow(
        Cause.CONTAINER_ERROR,
        pod.container_error,
        "whose container{s} cannot be started: {said}",
        "Correct the container's command, mounts or security context.",
        stuck=True,
    ),
    WorkerRow(
        Cause.INIT_CRASHES,
        pod.init_crashes,
        "whose pod{s} cannot start because an init container fails: {said}",
        "The job fails once it has ended more often than maxRestarts.",
        stuck=True,
    ),
    WorkerRow(
        Cause.SIDECAR_CRASHES,
        pod.sidecar_crashes,
        "whose sidecar{s} crash{es}: {said}",
        "See its log: `kubectl logs --container elasticjob-sidecar --previous`.",
        stuck=True,
    ),
    WorkerRow(
        Cause.SIDECAR_CRASHES,
        pod.kept_by(Reason.SIDECAR_CRASHES),
        "whose pod{s} cannot start: {said}",
        "See its log (`kubectl logs --previous`); its ends do not count against maxRestarts.",
        stuck=True,
    ),
    WorkerRow(
        Cause.SIDECAR_NOT_READY,
        pod.sidecar_not_ready,
        "whose sidecar{s} {have} run for {said} and {be} not ready",
        "The condition SidecarsReady says why, and so does the log: `kubectl logs --container elasticjob-sidecar`.",
    ),
    WorkerRow(
        Cause.CRASH_LOOP,
        pod.trainer_crashes,
        "whose trainer{s} crash{es} before {it} join{v}: {said}",
        "See its log (`kubectl logs --previous`); the job fails once it has ended more often than maxRestarts.",
        stuck=True,
    ),
    WorkerRow(
        Cause.VOLUME, pod.volume, "whose pod{s} cannot mount a volume: {said}", "Make what the volume refers to."
    ),
    WorkerRow(
        Cause.SANDBOX,
        pod.sandbox,
        "whose pod{s} the node cannot set up: {said}",
        "See the node's network plug-in and container runtime, and runtimeClassName in the template.",
    ),
    WorkerRow(
        Cause.NO_SCHEDULER,
        pod.no_scheduler,
        "whose pod{s} no scheduler has placed for {said}",
        "If it lasts, see whether the scheduler that the template names runs.",
    ),
    WorkerRow(Cause.STARTING, pod.starting, "whose pod{s} {be} starting: {said}"),
    WorkerRow(
        Cause.STORELESS,
        pod.storeless,
        "which served no store as rank 0: {said}",
        "See its log; its pod is replaced.",
    ),
    WorkerRow(
        Cause.FINISHING,
        pod.between_stages,
        "whose next torchrun has not begun: {said}",
        "See what the command does between its torchruns.",
    ),
    WorkerRow(
        Cause.SILENT,
        pod.silent,
        "which {have} been silent for {said}",
        "It is replaced once it counts as lost: see whether its node still exists.",
    ),
    WorkerRow(
        Cause.STOPPING,
        pod.stopping,
        "which {have} been stopping the processes of the last round for {said}",
        "A worker that has not joined again after rejoinSeconds is replaced.",
    ),
    WorkerRow(
        Cause.NO_TORCHRUN,
        pod.no_torchrun,
        "whose trainer{s} {have} run for {said}",
        "If it lasts, see the log: torchrun has to be started in the environment of its container, which `su -`, "
        "`sudo`, ssh and `env -i` drop, and with no rendezvous of its own; another launcher trains alone.",
    ),
    WorkerRow(
        Cause.SLOW_JOINER,
        pod.slow_joiner,
        "whose trainer{s} {have} run for {said} and not joined yet",
        "Importing torch takes a while; if it lasts, see its log.",
    ),
)
