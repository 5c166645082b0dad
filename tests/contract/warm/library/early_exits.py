# SPDX-License-Identifier: Apache-2.0
"""Ends the process when it is imported before the script runs."""

import os

from early_package import is_early

if is_early():
    os._exit(9)
