# SPDX-License-Identifier: Apache-2.0
"""Asks for the rank when it is imported."""

import os

SEEN = os.environ["RANK"]
