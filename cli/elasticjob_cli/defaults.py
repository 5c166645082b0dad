# SPDX-License-Identifier: Apache-2.0
"""Defaults of the command line. Help and completion need them, so this module imports nothing."""

DEFAULT_LEASE = "elasticjob-system/elasticjob-operator"  # for a release installed as in the docs
