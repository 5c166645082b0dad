# SPDX-License-Identifier: Apache-2.0
"""What a user has to change if the API server does not serve this sidecar. Pure: from a failure to a sentence.

The operator asks for that sentence and shows it in the job's condition, since its readers do not see this log.
"""

import re
from collections.abc import Callable

from elasticjob.api import GROUP, WORKERS
from elasticjob.kube.errors import ApiError, Conflict, NoConnection, NotFound, Untrusted

RECORDS = f"{WORKERS}.{GROUP}"
# the beginning of the API server's refusals; without the object's name the sentence is the same for all workers
NAMED = re.compile(r'(?<=: )\S+ "[^"]*" is (?:forbidden|invalid): ')
CLOCKS = "see that the clock of its node is right"
AUTHORITY = "see that ca.crt in the ConfigMap kube-root-ca.crt of the namespace is the API server's authority"

# the API server's wording, and the remedy; the first match applies
REFUSALS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], str]], ...] = (
    (
        re.compile(r"exceeded quota: ([^,\s]+), requested: ([^,\s=]+)"),
        lambda found, _: (
            f"raise {found[2]} in spec.hard of the ResourceQuota {found[1]}: each worker's pod has one ElasticWorker, "
            "spares and pods that are about to be replaced too"
        ),
    ),
    (
        re.compile(r"status unknown for quota: ([^,\s]+)"),
        lambda found, _: (
            f"the controller of quotas has not counted the ResourceQuota {found[1]} yet, which may take five minutes "
            "after the CRDs are installed; the sidecar tries again"
        ),
    ),
    (
        re.compile(r"ValidatingAdmissionPolicy '([^']+)'"),
        lambda found, _: f"let the ValidatingAdmissionPolicy {found[1]} allow the workers' pods {RECORDS}",
    ),
    (
        re.compile(r'webhook "([^"]+)"'),
        lambda found, _: f"let the webhook {found[1]} allow {RECORDS}, or take them out of its rules",
    ),
    (re.compile(r"because it is being terminated"), lambda _, __: "the namespace is being deleted"),
    (
        re.compile(r'User "([^"]+)" cannot (\w+) resource "([^"]+)"'),
        lambda found, job: (
            f"the Role and the RoleBinding {job}-worker give {found[1]} the right to {found[2]} {found[3]}: see what "
            "has changed or deleted them; the operator makes them anew before it makes a pod, and every five minutes"
        ),
    ),
)


def explained(failure: ApiError, job: str) -> str:
    """The failure, and what to change for this job's sidecar, as one sentence."""
    message = NAMED.sub("", str(failure))
    remedy = _remedy(failure, message, job)
    return f"{message}; {remedy}" if remedy else message


def _remedy(failure: ApiError, message: str, job: str) -> str:
    if isinstance(failure, Untrusted):
        return f"{CLOCKS}, and {AUTHORITY}" if failure.speaks_of_time else AUTHORITY
    if isinstance(failure, NoConnection):
        return (
            "let the job's pods reach that address: see the namespace's NetworkPolicies (egress), and the firewalls "
            "and the network plug-in between its node and the API server"
        )
    if failure.status == 401:
        return f"it does not accept the pod's token: {CLOCKS}, and that the API server accepts what its issuer signs"
    if isinstance(failure, Conflict):
        return f"something else writes {RECORDS}, perhaps a webhook: take them out of its rules"
    for pattern, remedy in REFUSALS:
        if found := pattern.search(message):
            return remedy(found, job)
    if isinstance(failure, NotFound) or failure.status in (400, 422):
        return f"see that the CRD {RECORDS} is there, and that of this version of the operator"
    return ""
