"""The console script `elasticjob-operator`."""

import asyncio
import logging
import sys

from elasticjob_operator.options import parse


def main() -> None:
    options = parse(None)
    from kubernetes.aio.config import ConfigException

    from elasticjob_operator.app import run

    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # kopf logs each event of each object that it hands over
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    try:
        sys.exit(asyncio.run(run(options)))
    except ConfigException as error:
        sys.exit(
            f"elasticjob-operator: no API server: neither a pod's service account nor KUBECONFIG names one: {error}"
        )


if __name__ == "__main__":
    main()
