# SPDX-License-Identifier: Apache-2.0
"""Keeps a copy of the environment from its import on."""

import os

ENVIRONMENT = os.environ.copy()
