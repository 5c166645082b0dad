# SPDX-License-Identifier: Apache-2.0
"""Pods, records and nodes, reduced to the facts that this project uses. Pure.

A pod takes 10 to 60 KiB as parsed JSON, and an operator keeps those of all its jobs. So each is read once, at its
event, into a small class with named fields, and the JSON is dropped. The classes hold facts; conclusions that depend on
a job's spec are drawn where they are needed.
"""

from elasticjob.reading.container import ABSENT, Container, Termination
from elasticjob.reading.devices import Device
from elasticjob.reading.node import Labels, Node, Taint
from elasticjob.reading.pod import Pod, PodCondition
from elasticjob.reading.record import Record, WorkerContent
