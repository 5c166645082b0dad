# SPDX-License-Identifier: Apache-2.0
"""A module of a library that other modules of it are imported by."""

import early_package.part  # noqa: F401
