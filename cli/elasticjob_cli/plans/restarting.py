# SPDX-License-Identifier: Apache-2.0
"""What a restart leads to, in sentences, before it is asked for."""

from elasticjob_cli.errors import CliError, Exit
from elasticjob_cli.reading.look import Look
from elasticjob_cli.reading.words import names, plural


def restart_plan(look: Look) -> str:
    """Raises CliError where no restart can be done."""
    if look.spec.suspend:
        return f"{look.name} is suspended: all its processes are new anyway when it goes on."
    if look.is_about_to_end:
        done = sorted(look.finished)
        have = "have" if len(done) > 1 else "has"
        raise CliError(
            f"{names(done)} of {look.name} {have} finished, so round {look.round} trains on to its end: no restart can "
            "be done",
            Exit.JOB_ENDED,
        )
    if not look.is_formed:
        return f"Round {look.round} of {look.name} is forming: all its processes are new anyway."
    size, seconds = look.status.rendezvous.world_size, look.spec.rendezvous.save_seconds
    return (
        f"Round {look.round} of {look.name} ends, and the training processes of its {plural(size, 'worker')} start "
        f"anew in the pods that they have. Scripts that call wants_restart() may save before, for up to {seconds} s."
    )
