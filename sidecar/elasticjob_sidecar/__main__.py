# SPDX-License-Identifier: Apache-2.0
"""`elasticjob-sidecar`: read the configuration, then run. It takes no arguments: the operator sets the environment."""

import asyncio
import os
import resource
import sys

from elasticjob import logs
from elasticjob_sidecar.config import Config, ConfigError
from elasticjob_sidecar.plugin import lay_out
from elasticjob_sidecar.store.credentials import CredentialsError, CredentialsMaker


def main() -> None:
    try:
        config = Config.from_env(os.environ)
    except ConfigError as error:
        sys.exit(f"elasticjob-sidecar: {error}")
    logs.set_up(config.log_level, config.log_format)
    logs.begin(job=f"{config.namespace}/{config.job}", worker=config.index)
    _allow_files()
    if config.plugin_dir is not None:  # first, as the trainer may be waiting for it
        try:
            lay_out(config.plugin_dir)
        except OSError as error:
            sys.exit(f"elasticjob-sidecar: the plug-in cannot be copied to ELASTICJOB_PLUGIN_DIR: {error}")
    making = CredentialsMaker()
    # Imported late: a wrong configuration is reported at once, and the credentials are made in the meantime.
    from elasticjob_sidecar.app import StartError, run

    try:
        asyncio.run(run(config, making.result()))
    except (CredentialsError, StartError) as error:
        sys.exit(f"elasticjob-sidecar: {error}")


def _allow_files() -> None:
    """Raise the limit of open files to what the node allows: rank 0 needs one per process of the job, and the default
    of many nodes is 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
