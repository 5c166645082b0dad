# SPDX-License-Identifier: Apache-2.0
"""The console script `elasticjob-operator`."""

import asyncio
import gc
import logging
import sys

from elasticjob import logs
from elasticjob_operator.execution import execute_anew, hold_signals
from elasticjob_operator.options import parse

# Nearly all objects are JSON, without cycles. With Python's defaults the search for cycles takes a fifth of a
# take-over.
GARBAGE_THRESHOLDS = (20_000, 20, 20)


def main() -> None:
    hold_signals()  # those that come before the event loop can hear them
    options = parse(None)
    from kubernetes.aio.config import ConfigException

    from elasticjob_operator.app import End, run
    from elasticjob_operator.certificate import CertificateError

    gc.set_threshold(*GARBAGE_THRESHOLDS)
    logs.set_up(options.log_level, options.log_format)
    # kopf logs each event of each object
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    try:
        ended = asyncio.run(run(options))
    except ConfigException as error:
        sys.exit(
            f"elasticjob-operator: no API server: neither a pod's service account nor KUBECONFIG names one: {error}"
        )
    except CertificateError as error:
        sys.exit(f"elasticjob-operator: {error}")
    if ended is End.LEASE_LOST:
        execute_anew()
    sys.exit(ended is End.FAILED)


if __name__ == "__main__":
    main()
