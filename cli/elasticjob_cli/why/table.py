# SPDX-License-Identifier: Apache-2.0
"""The rules that determine a cause, as one table: the first row whose test returns a message is the cause.

The rows of the job come first. One that `covers` excludes the rows of its workers. Each missing worker then has the
first of the workers' rows that holds. In a sentence, `{said}` is the result of the test; `{s}`, `{have}` and the like
depend on whether it is about one worker or several.
"""

from elasticjob.blockers import BUDGET_REFUSED, CONTAINER_FAILED, DRAIN_GRACE_OVER
from elasticjob.reading.waits import Reason
from elasticjob_cli.why import job_causes as job
from elasticjob_cli.why import pod_causes as pod
from elasticjob_cli.why.causes import Cause
from elasticjob_cli.why.rows import JobRow, WorkerRow

OF_JOB = (
    JobRow(
        Cause.DELETED,
        job.being_deleted,
        "It is being deleted: {said}.",
        "Nothing more is done for it, and its status is of before.",
    ),
    JobRow(Cause.COMPLETE, job.complete, "It is complete: {said}."),
    JobRow(
        Cause.POLICY,
        job.failed_by_policy,
        "It has failed, and no other try was made: {said}.",
        "Make a new job once that is mended, or change the rule.",
    ),
    JobRow(Cause.FAILED, job.failed, "It has failed: {said}.", "Make a new job once that is mended."),
    JobRow(
        Cause.MANAGED,
        job.managed_elsewhere,
        "Another controller looks after it: {said}.",
        "Ask that controller. spec.managedBy cannot be changed: make a new job for ElasticJob's operator to run it.",
    ),
    JobRow(
        Cause.TWO_INSTALLATIONS,
        job.two_installations,
        "Two operators want to run it: {said}.",
        "Where the first is uninstalled, the other goes on ten minutes after the job has come to a standstill, and at "
        "once when its pods are restarted.",
        covers=False,
    ),
    JobRow(
        Cause.NO_OPERATOR,
        job.no_operator,
        "No operator leads: {said}.",
        "Until one does, nobody replaces a worker or forms a round; see that its pods run, or install the chart.",
    ),
    JobRow(
        Cause.NO_RIGHTS,
        job.no_rights,
        "The operator does nothing for this job: {said}.",
        "See the chart's value `namespaces`, its ClusterRole and the bindings of it; the operator's log says the same.",
    ),
    JobRow(
        Cause.CLOSED,
        job.closed,
        "Its rendezvous is closed: {said}.",
        "This job accepts no more workers. Create a new job to change its size.",
    ),
    JobRow(Cause.TEMPLATE_INVALID, job.template_invalid, "No pod can be made of its template: {said}."),
    JobRow(Cause.SUSPENDED, job.suspended, "It is suspended: {said}.", "`kubectl elasticjob resume` lets it go on."),
    JobRow(
        Cause.GANG_REFUSED,
        job.gang_refused,
        "Kueue does not admit all of it: {said}.",
        "Somebody has to mend what is named; it is tried again, at the latest after 160 s.",
    ),
    JobRow(
        Cause.GANG,
        job.gang_waits,
        "Kueue has not admitted all of it: {said}.",
        "It goes on by itself when its queue has room; who holds how much is in `kubectl get workloads`.",
    ),
    JobRow(Cause.ACCESS_REFUSED, job.told(Reason.ACCESS_REFUSED), "Its workers have no access: {said}."),
    JobRow(Cause.NAME_TAKEN, job.told(Reason.NAME_TAKEN), "A pod cannot be made: {said}.", covers=False),
    JobRow(
        Cause.QUOTA,
        job.told(Reason.QUOTA_EXCEEDED),
        "A quota of the namespace refuses a pod: {said}.",
        "It is tried again, at the latest after 160 s: make room in the quota, or scale the job down.",
        covers=False,
    ),
    JobRow(
        Cause.ADMISSION,
        job.told(Reason.ADMISSION_REFUSED),
        "The cluster refuses a pod: {said}.",
        "It is tried again, at the latest after 160 s: change the template, or what refuses it.",
        covers=False,
    ),
    JobRow(
        Cause.STORELESS,
        job.storeless_rank_0,
        "The last round ended because rank 0 served no store: {said}.",
        "See its log: the script, or torchrun itself, stands still before training begins.",
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
        "Their logs say what their commands do after torchrun, such as an upload. Where that takes longer, raise "
        "`finishSeconds`.",
        covers=False,
    ),
    JobRow(
        Cause.NETWORK,
        job.network_fault,
        "Its pods do not reach each other: {said}.",
        "Let the job's pods reach each other at that port: see the namespace's NetworkPolicies, and firewalls or "
        "security groups between the nodes; the log of the named pod's sidecar says how it fails. Nobody is replaced "
        "for it, and failures do not count while it lasts.",
        covers=False,
    ),
    JobRow(
        Cause.SIDECAR_NOT_READY,
        job.sidecars_not_ready,
        "Sidecars are refused or cut off by the API server: {said}.",
        "They try again every three seconds at the latest; until then their workers have no part in a new round.",
        covers=False,
    ),
    JobRow(
        Cause.NO_STEPS,
        job.no_steps,
        "The training hangs: {said}.",
        "The trainers' logs have the Python stacks of all its processes. With `hangPolicy: Restart` such a round is "
        "started anew.",
        covers=False,
    ),
    JobRow(
        Cause.NODE_DRAINING,
        job.node_draining,
        "A node is about to go: {said}.",
        "Others start elsewhere and take their places in one planned round; evictions wait for that, for "
        "drain.graceSeconds at most.",
        covers=False,
    ),
    JobRow(
        Cause.DRAIN_GRACE_OVER,
        job.told(DRAIN_GRACE_OVER),
        "A drain has waited for long enough: {said}.",
        "Where replacements take longer, raise `drain.graceSeconds`.",
        covers=False,
    ),
    JobRow(
        Cause.BUDGET_REFUSED, job.told(BUDGET_REFUSED), "Its PodDisruptionBudget cannot be had: {said}.", covers=False
    ),
)

OF_WORKER = (
    WorkerRow(
        Cause.INVALID_RECORD,
        pod.invalid_record,
        "whose ElasticWorker{s} make{v} no sense: {said}",
        "The worker is replaced after 15 s, or workerLostSeconds if that is more; see who else writes ElasticWorkers.",
    ),
    WorkerRow(
        Cause.STORELESS,
        pod.held_back_storeless,
        "which {have} no pod: {said}",
        "As rank 0 it served no store: see its log. Each next pod is made later, at most 300 s after the last.",
    ),
    WorkerRow(
        Cause.BACK_OFF,
        pod.held_back,
        "which {have} no pod: {said}",
        "Each next pod is made later, at most 300 s after the last.",
    ),
    WorkerRow(Cause.NO_POD, pod.no_pod, "which {have} no pod yet: {said}"),
    WorkerRow(
        Cause.QUEUED_TWICE,
        pod.queued_twice,
        "which Kueue holds back though the gang has quota: {said}",
        "Name that LocalQueue otherwise if it is default, as it takes all pods of its namespace; or use "
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
        "Make room on other nodes or add some, or take `avoidNodes.required` back.",
        stuck=True,
    ),
    WorkerRow(
        Cause.UNSCHEDULABLE,
        pod.unschedulable,
        "whose pod{s} {be} pending: {said}",
        "Make room or add nodes, or ask for less in the template.",
        stuck=True,
    ),
    WorkerRow(
        Cause.PULL_SECRET,
        pod.pull_secret,
        "whose image the registry does not give to {this} pod{s}: {said}",
        "Make the Secret that imagePullSecrets names, or name one with the registry's credentials.",
        stuck=True,
    ),
    WorkerRow(
        Cause.IMAGE,
        pod.at_fault(Reason.IMAGE_PULL),
        "whose image cannot be had: {said}",
        "Name an image that the nodes can pull.",
        stuck=True,
    ),
    WorkerRow(
        Cause.CONFIG,
        pod.at_fault(Reason.CONFIG_MISSING),
        "whose container{s} refer{v} to what is not there: {said}",
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
        "whose pod{s} cannot start, as an init container fails: {said}",
        "More than maxRestarts of its ends fail the job.",
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
        "See its log (`kubectl logs --previous`); more than maxRestarts of its ends fail the job.",
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
        "Should it last: see whether the scheduler runs that the template names.",
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
        "which {have} given no sign of life for {said}",
        "It is replaced once it counts as lost: see whether its node is there.",
    ),
    WorkerRow(
        Cause.STOPPING,
        pod.stopping,
        "which still stop{v} the processes of the last round, since {said} ago",
        "Whoever has not joined again after rejoinSeconds is replaced.",
    ),
    WorkerRow(
        Cause.NO_TORCHRUN,
        pod.no_torchrun,
        "whose trainer{s} {have} run for {said}",
        "Should it last, see the log: torchrun has to be started in the environment of its container, which `su -`, "
        "`sudo`, ssh and `env -i` drop, and with no rendezvous of its own; another launcher trains alone.",
    ),
    WorkerRow(
        Cause.SLOW_JOINER,
        pod.slow_joiner,
        "whose trainer{s} {have} run for {said} and not joined yet",
        "Importing torch takes a while; should it last, see its log.",
    ),
)
