# SPDX-License-Identifier: Apache-2.0
"""The rendezvous as a pure state machine: it knows no pod, socket, clock or thread.

`decide` is its only step. The invariants that hold after each step are stated a second time, in tests/oracle.
"""

from elasticjob.members import Member
from elasticjob.rendezvous.decide import decide
from elasticjob.rendezvous.decision import Decision, Event, Failed
from elasticjob.rendezvous.model import Clocks, Failures, Matched, PodState, Request, Spec, State, Worker
from elasticjob.rendezvous.roster import Roster, pods_to_create, pods_to_delete, roster_of
