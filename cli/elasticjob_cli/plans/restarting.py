# SPDX-License-Identifier: Apache-2.0
"""What a restart leads to, in sentences."""

from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.words import names, plural

ASKED = "spec.restartedAt is set."


def restart_plan(look: Look) -> str:
    """The message once the restart is requested. `look`: the job before that. Raises CliError if no restart is
    possible."""
    if look.spec.suspend:
        return f"{ASKED} {look.name} is suspended: all its processes are new anyway when it goes on."
    if look.is_about_to_end:
        done = sorted(look.finished)
        have = "have" if len(done) > 1 else "has"
        raise CliError(
            f"{names(done)} of {look.name} {have} finished, so round {look.round} trains on to its end: no restart can "
            "be done",
            Exit.JOB_ENDED,
        )
    if not look.is_formed:
        return f"{ASKED} Round {look.round} of {look.name} is forming: all its processes are new anyway."
    size, seconds = look.status.rendezvous.world_size, look.spec.rendezvous.save_seconds
    return (
        f"{ASKED} What follows: round {look.round} of {look.name} ends, and the training processes of its "
        f"{plural(size, 'worker')} start "
        f"anew in the pods that they have. Scripts that call wants_restart() may save before, for up to {seconds} s."
    )
