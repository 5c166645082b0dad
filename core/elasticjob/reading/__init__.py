# SPDX-License-Identifier: Apache-2.0
"""Pods, records and nodes as this project reads them: what it looks at, and nothing else. Pure.

A pod is 10 to 60 KiB as Python reads its JSON, and an operator keeps those of all its jobs: so each is read once, at
its event, into a small class that names all that is kept, and its JSON is dropped. The classes keep facts; what follows
from a job's spec is worked out where it is needed.
"""

from elasticjob.reading.container import ABSENT, Container, End
from elasticjob.reading.node import Labels, Node, Taint, Toleration
from elasticjob.reading.pod import Condition, Pod
from elasticjob.reading.record import Record, Said

__all__ = ["ABSENT", "Condition", "Container", "End", "Labels", "Node", "Pod", "Record", "Said", "Taint", "Toleration"]
