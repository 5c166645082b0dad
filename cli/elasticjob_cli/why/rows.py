# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of causes, and the reasons that only the command line tool sees."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from elasticjob.blocker_reasons import REMEDIES, Reason
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.worker import WorkerView


class LocalReason(StrEnum):
    """The word for a cause, in `-o json`, where no blocker of the status has one. `table` determines which holds."""

    DELETED = "BeingDeleted"
    COMPLETE = "Complete"
    POLICY = "PodFailurePolicy"
    FAILED = "Failed"
    MANAGED = "ManagedElsewhere"
    TWO_INSTALLATIONS = "TwoInstallations"
    NO_OPERATOR = "NoOperator"
    CLOSED = "Closed"
    SUSPENDED = "Suspended"
    GANG_REFUSED = "GangRefused"
    GANG = "GangPending"
    STORELESS = "StorelessRank0"
    QUEUED_TWICE = "QueuedTwice"
    PULL_SECRET = "PullSecret"
    VOLUME = "VolumeNotMounted"
    SANDBOX = "NoSandbox"
    NO_SCHEDULER = "NoScheduler"
    SILENT = "Silent"
    STOPPING = "Stopping"
    NO_TORCHRUN = "NoTorchrun"
    SLOW_JOINER = "SlowJoiner"


class JobRow(NamedTuple):
    """A cause of the job. `covers`: while it holds, its pods explain nothing more."""

    reason: Reason | LocalReason
    test: Callable[[Look], str | None]
    sentence: str
    remedy: str = ""
    covers: bool = True


class WorkerRow(NamedTuple):
    """A cause of one worker. `sentence` follows "worker 3, ". `stuck`: the worker will not come by itself, so nobody
    waits for it."""

    reason: Reason | LocalReason
    test: Callable[[WorkerView, Look], str | None]
    sentence: str
    remedy: str = ""
    stuck: bool = False


def remedy_of(row: JobRow | WorkerRow) -> str:
    """What to do about the cause, as a sentence: the row's own remedy, or that of the status; empty if it has none."""
    remedy = row.remedy or REMEDIES.get(row.reason, "")
    return remedy[:1].upper() + remedy[1:].removesuffix(".") + "." if remedy else ""
