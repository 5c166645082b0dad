# SPDX-License-Identifier: Apache-2.0
"""The console script `elasticjob-operator`."""

import asyncio
import gc
import logging
import sys

from elasticjob import logs
from elasticjob_operator.options import parse

# Nearly all that is kept is JSON, which has no cycles: Python's defaults spend a fifth of a take-over looking for them.
GARBAGE_THRESHOLDS = (20_000, 20, 20)


def main() -> None:
    options = parse(None)
    from kubernetes.aio.config import ConfigException

    from elasticjob_operator.app import run
    from elasticjob_operator.certificate import CertificateError

    gc.set_threshold(*GARBAGE_THRESHOLDS)
    logs.set_up(options.log_level, options.log_format)
    # kopf logs each event of each object that it hands over
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    try:
        sys.exit(asyncio.run(run(options)))
    except ConfigException as error:
        sys.exit(
            f"elasticjob-operator: no API server: neither a pod's service account nor KUBECONFIG names one: {error}"
        )
    except CertificateError as error:
        sys.exit(f"elasticjob-operator: {error}")


if __name__ == "__main__":
    main()
