# SPDX-License-Identifier: Apache-2.0
"""A worker's record, which is its ElasticWorker."""

from dataclasses import dataclass, fields, replace
from operator import attrgetter

from pydantic import ValidationError

from elasticjob.api import JOB_LABEL, ElasticWorker, ElasticWorkerStatus, WorkerRequest
from elasticjob.certificates import check_certificate, der_of, fingerprint_of
from elasticjob.objects import Object
from elasticjob.reading.shared import shared, word
from elasticjob.text import plain

PROBLEM_LENGTH = 300
REPORTED = ("heartbeat", "step", "total", "metrics", "waits")  # fields of the status that change all the time


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContent:
    """The request and the status of a worker, as its schema defines them. `job`, `index`: the owner it names.
    `fingerprint`: of the sidecar's certificate, by which other sidecars know it. `certificate_problem`: why TLS cannot
    use that certificate, empty if it can."""

    job: str
    index: int
    id: str
    address: str
    node: str
    fingerprint: str
    certificate_problem: str
    request: WorkerRequest | None
    status: ElasticWorkerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`version`: its resourceVersion. `generation` grows with each request. `job`: from its label. `owners`: the UIDs
    of its owners. `content`: None if it does not match its schema; `problem` says why."""

    name: str
    namespace: str
    uid: str
    version: int
    generation: int
    job: str
    owners: tuple[str, ...]
    content: WorkerContent | None
    problem: str = ""

    @classmethod
    def read(cls, body: Object, known: "Record | None" = None, *, check: bool = True) -> "Record":
        """Read an ElasticWorker. `known`: its previous form, whose unchanged parts are not checked again. `check`:
        whether to check its certificate, which costs half a millisecond."""
        meta, content, problem = body["metadata"], None, ""
        if known is not None and known.uid != meta.get("uid"):
            known = None
        try:
            if known is not None and known.content and known.generation == meta.get("generation"):
                content = replace(known.content, status=_status(ElasticWorkerStatus.parse(body.get("status"))))
            else:
                content = _content(ElasticWorker.parse(body), known.content if known else None, check=check)
        except ValidationError as error:
            first = error.errors()[0]
            problem = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        return cls(
            name=meta["name"],
            namespace=word(meta.get("namespace")),
            uid=meta.get("uid", ""),
            version=int(meta.get("resourceVersion", 0)),
            generation=meta.get("generation", 0),
            job=word((meta.get("labels") or {}).get(JOB_LABEL)),
            owners=tuple(owner["uid"] for owner in meta.get("ownerReferences") or ()),
            content=content,
            problem=plain(problem, PROBLEM_LENGTH),
        )

    def only_reports(self, before: "Record") -> bool:
        """Whether it is `before` with another heartbeat and script's report alone."""
        now, then = self.content, before.content
        if now is None or then is None or _meta_of(self) != _meta_of(before):
            return False
        return _asked_by(now) == _asked_by(then) and _rest_of(now.status) == _rest_of(then.status)

    @property
    def writes(self) -> int:
        """How often it was written, by heartbeats and by requests."""
        return self.generation + ((self.content.status.heartbeat or 0) if self.content else 0)


# what two forms of a record are compared by; parts that are the same object take no time
_meta_of = attrgetter("uid", "generation", "job", "owners")
_asked_by = attrgetter(*(field.name for field in fields(WorkerContent) if field.name != "status"))
_rest_of = attrgetter(*(field for field in ElasticWorkerStatus.model_fields if field not in REPORTED))


def _content(worker: ElasticWorker, known: WorkerContent | None, *, check: bool) -> WorkerContent:
    spec = worker.spec
    fingerprint, problem = _certificate(spec.certificate, known, check=check)
    return WorkerContent(
        job=word(spec.job),
        index=spec.index,
        id=shared(spec.id),
        address=spec.address,
        node=word(spec.node),
        fingerprint=fingerprint,
        certificate_problem=problem,
        request=spec.request,
        status=_status(worker.status),
    )


def _status(status: ElasticWorkerStatus) -> ElasticWorkerStatus:
    """The status with shared copies: the list of the script's imports is long, and the same in all workers of a job."""
    return status.model_copy(update={"imports": shared(status.imports)}) if status.imports else status


def _certificate(certificate: str, known: WorkerContent | None, *, check: bool) -> tuple[str, str]:
    """The fingerprint of the certificate, and what is wrong with it."""
    fingerprint = ""
    try:
        der = der_of(certificate)
        fingerprint = fingerprint_of(der)
        if check and (known is None or known.fingerprint != fingerprint or known.certificate_problem):
            check_certificate(der)
    except ValueError as error:
        return fingerprint, f"is no certificate in PEM form: {error}"
    return fingerprint, ""
