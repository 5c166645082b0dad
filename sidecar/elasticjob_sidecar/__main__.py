"""`elasticjob-sidecar`: read the configuration, then run. No arguments: the operator sets the environment."""

import asyncio
import logging
import os
import sys

from elasticjob_sidecar.config import Config, ConfigError


def main() -> None:
    try:
        config = Config.from_env(os.environ)
    except ConfigError as error:
        sys.exit(f"elasticjob-sidecar: {error}")
    logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    # Imported late: a wrong configuration is told at once, without half a second of imports.
    from elasticjob_sidecar.app import StartError, run

    try:
        asyncio.run(run(config))
    except StartError as error:
        sys.exit(f"elasticjob-sidecar: {error}")


if __name__ == "__main__":
    main()
