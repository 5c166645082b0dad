# SPDX-License-Identifier: Apache-2.0
"""The reasons that only the command line tool sees, beside those of `status.blockers`. `table` determines which of them
holds."""

from enum import StrEnum


class LocalReason(StrEnum):
    """The word for a cause, in `-o json`, where no blocker of the status has one."""

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
