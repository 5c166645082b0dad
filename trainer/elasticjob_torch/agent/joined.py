# SPDX-License-Identifier: Apache-2.0
"""Says in torch's terms why a join was not answered with a round."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousTimeoutError,
)

from elasticjob_torch import wire
from elasticjob_torch.agent.hooks import CannotGoOn
from elasticjob_torch.agent.state_machine import CannotRunHere
from elasticjob_torch.sidecar.calls import Interrupted
from elasticjob_torch.sidecar.errors import (
    Closed,
    Leaving,
    NewProcesses,
    SidecarError,
    SidecarUnavailable,
    StageFinished,
)

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

BACKEND = "elasticjob"


def joined(join: Callable[[], wire.Round]) -> wire.Round:
    """Return the round that ``join`` returns. Raises what `ElasticJobRendezvousHandler.next_rendezvous` says."""
    try:
        return join()
    except (Interrupted, NewProcesses) as error:
        raise CannotGoOn(str(error)) from None
    except StageFinished as error:
        log.info("nothing left to do: %s", error)
        raise SystemExit(0) from None
    except Leaving as error:
        log.info("this worker ends with exit code %d: %s", wire.LEFT_EXIT_CODE, error)
        raise SystemExit(wire.LEFT_EXIT_CODE) from None
    except Closed as error:
        raise _closed(error) from None
    except CannotRunHere as error:
        raise SystemExit(f"{BACKEND}: {error}") from None
    except SidecarUnavailable as error:
        raise RendezvousConnectionError(str(error)) from None
    except SidecarError as error:
        raise RendezvousError(str(error)) from None


def _closed(error: Closed) -> BaseException:
    if error.outcome == wire.Outcome.COMPLETE:
        log.info("the job is complete without this worker, which ends with exit code %d", wire.LEFT_EXIT_CODE)
        return SystemExit(wire.LEFT_EXIT_CODE)
    kind = RendezvousTimeoutError if error.outcome == wire.Outcome.TIMEOUT else RendezvousClosedError
    closed: BaseException = kind(str(error))
    return closed
