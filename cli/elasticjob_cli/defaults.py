# SPDX-License-Identifier: Apache-2.0
"""What holds where the command line says nothing. Help and completion need it, so that it imports nothing."""

DEFAULT_LEASE = "elasticjob-system/elasticjob-operator"  # of a release that is installed as the docs say
