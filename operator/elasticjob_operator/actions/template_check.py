# SPDX-License-Identifier: Apache-2.0
"""Whether pods can be made from a job's template. The API server is asked once for each template; then the project's
own rules are applied.

Only the form is judged. The cluster may allow later what it refuses now, and `worker_pods` retries that.
"""

import re

from elasticjob.api import ElasticJobSpec, ElasticJobStatus
from elasticjob.objects import Object
from elasticjob_operator.cluster.client import Kube
from elasticjob_operator.cluster.events import Announcer
from elasticjob_operator.job.refusal_messages import explained
from elasticjob_operator.objects import template, workloads
from elasticjob_operator.objects.pods import SidecarImage, render_pod
from elasticjob_operator.objects.workloads import NO_BATCH

# the API server's words between the object's name and the problem
REFUSALS = (" is invalid: ", " cannot be handled as a PodTemplate: ")
NO_QUANTITY = re.compile(r"quantities must match|unable to parse (numeric part|quantity)")


class TemplateCheck:
    """The check of one job's template. `problem`: what has to be changed before there can be pods."""

    def __init__(self, kube: Kube, announcer: Announcer, image: SidecarImage) -> None:
        self._kube, self._announcer, self._image = kube, announcer, image
        self._checked: tuple[object, ...] | None = None  # what was judged
        self.problem: str | None = None

    async def check(self, job: Object, spec: ElasticJobSpec, before: ElasticJobStatus) -> None:
        """Checks the template, unless this operator has judged it or another leader has found it valid."""
        given = (spec.template_hash, spec.sidecar, spec.pod_failure_policy, workloads.problem(job, spec))
        if given == self._checked:
            return
        if self._checked is None and _was_valid(job, before):
            self.problem = self._own_rules(job, spec)[1]
        else:
            self.problem = await self._judge(job, spec)
        self._checked = given
        if self.problem:
            self._announcer.announce(job, "TemplateInvalid", self.problem, warning=True)

    async def _judge(self, job: Object, spec: ElasticJobSpec) -> str | None:
        """The problem of the template. The API server judges it as it is, then the project's own rules, then the API
        server the pod made from it."""
        namespace = job["metadata"]["namespace"]
        if refusal := await self._kube.try_template(namespace, spec.template):
            fields = template.odd_quantities(spec.template) if NO_QUANTITY.search(refusal) else ()
            return "; ".join([f"spec.template is not valid: {_essence(refusal)}", *fields])
        pod, found = self._own_rules(job, spec)
        if found:
            return found
        whole = {"metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")}, "spec": pod["spec"]}
        if refusal := await self._kube.try_template(namespace, whole):
            return f"spec.template with the sidecar's part is not valid: {explained(_essence(refusal), pod)}"
        return None

    def _own_rules(self, job: Object, spec: ElasticJobSpec) -> tuple[Object, str | None]:
        """A worker's pod, and the problem of the template."""
        try:
            if found := template.problem(spec) or workloads.problem(job, spec):
                return {}, found
            return render_pod(job, spec, 0, 0, self._image, batch=NO_BATCH), None
        except Exception as error:  # the template may hold anything: the user has to see the error, not only the log
            return {}, f"spec.template cannot be made into a pod: {type(error).__name__}: {error}"


def _essence(refusal: str) -> str:
    return next((refusal.split(words, 1)[1] for words in REFUSALS if words in refusal), refusal)


def _was_valid(job: Object, status: ElasticJobStatus) -> bool:
    """Whether the previous leader found the template of this generation valid."""
    conditions = (one for one in status.conditions if one.type == "TemplateValid")
    return any((one.status, one.observed_generation) == ("True", job["metadata"]["generation"]) for one in conditions)
