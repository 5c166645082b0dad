# SPDX-License-Identifier: Apache-2.0
"""`python -m elasticjob_cli`."""

from elasticjob_cli.app import main

if __name__ == "__main__":
    main()
