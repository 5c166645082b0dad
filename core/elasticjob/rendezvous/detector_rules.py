# SPDX-License-Identifier: Apache-2.0
"""The rules by which `decide` runs the failure detector: it notes heartbeats and acks, and pings suspected workers.
`failure_detector` has the questions, and `losses` what follows from a ping without an ack."""

from elasticjob.rendezvous import failure_detector
from elasticjob.rendezvous.model import Beat
from elasticjob.rendezvous.step import Step


def note_heartbeats(step: Step) -> None:
    """A heartbeat counts from when this operator sees it change. A long silence makes a worker suspected (rules 5 and
    11).

    Before the first heartbeat the silence counts from when the record was first seen: a worker may fall silent that
    early.
    """
    known, beats = step.state.clocks.beats, {}
    for member, worker in step.able.items():
        last = known.get(member)
        beats[member] = last if last and last.value == worker.heartbeat else Beat(worker.heartbeat, step.now)
    step.clock(beats=beats)


def note_acks(step: Step) -> None:
    """The first ack of a ping starts the clocks of all other workers that were pinged (rules 5 and 11)."""
    step.clock(pings=failure_detector.with_acks(step.state, step.able, step.now))


def ping_suspected(step: Step) -> None:
    """Suspected workers are pinged, together with witnesses that are not suspected (rule 5)."""
    state, now = step.state, step.now
    present = step.able
    suspects = failure_detector.suspected(step.spec, state, present, now)
    pings = failure_detector.unsettled(state, present, suspects)
    ping = failure_detector.to_ping(state, present, suspects, pings, now)
    if ping is not None:
        pings = failure_detector.pinged_by(state, present, ping, pings, now)
        step.set(ping=state.ping + 1, pinged=ping.members)
    step.clock(pings=pings)
