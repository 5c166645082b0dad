# SPDX-License-Identifier: Apache-2.0
"""The rules of `maxRestarts` and of failures in a row: what counts, when it is too much, and when it is forgotten."""

from elasticjob.rendezvous import policy
from elasticjob.rendezvous.backoff import LONGEST_SECONDS, forgotten
from elasticjob.rendezvous.losses import may_be_explained
from elasticjob.rendezvous.roster import has_joined
from elasticjob.rendezvous.step import Step
from elasticjob.terms import Outcome, RendezvousPhase

FORMING, FORMED, _ = RendezvousPhase


def end_beyond_budget(step: Step) -> None:
    """A failure beyond `maxRestarts` ends the job as soon as no loss can explain it any more, even if no round can be
    formed (rule 10)."""
    state, spec = step.state, step.spec
    if state.phase is not FORMING or spec.suspend or not state.failure or state.restarts < spec.max_restarts:
        return
    if not policy.ignores(state) and not may_be_explained(spec, state, step.workers, step.now):
        is_within_budget(step)


def is_within_budget(step: Step) -> bool:
    """Count a failure that nothing has explained. Returns False when it exceeds `maxRestarts` and has ended the job."""
    failure, restarts = step.state.failure, step.state.restarts + 1
    if not failure or policy.is_ignored(step):
        return True
    step.set(restarts=restarts)
    if restarts <= step.spec.max_restarts:
        return True
    step.close(Outcome.FAILED, f"{failure}: failure {restarts}, and maxRestarts is {step.spec.max_restarts}")
    return False


def reset_restarts(step: Step) -> None:
    """A round that stands long enough resets the count of failures to zero (rule 10)."""
    held = step.now - step.state.clocks.formed
    if step.state.phase is FORMED and step.state.restarts and held >= step.spec.restart_reset:
        step.set(restarts=0)


def forgive_failures(step: Step) -> None:
    """An index's failures are forgotten once its pod has been in a round for the longest delay, or has waited as a
    spare for that long (rule 5)."""
    state, clocks = step.state, step.state.clocks
    if not clocks.failures:
        return
    stands = state.phase is FORMED and step.now - clocks.formed >= LONGEST_SECONDS
    members = {member.index for member in state.participants} if stands else set()
    spares = {worker.index for worker in step.roster.spares if has_joined(state, worker)}
    step.clock(
        failures={
            index: known
            for index, known in clocks.failures.items()
            if index not in members and not (index in spares and step.now >= forgotten(known))
        }
    )
