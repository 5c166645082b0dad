# SPDX-License-Identifier: Apache-2.0
"""Imports a name that the script's folder may have, too."""

import early_shadowed

SEEN = early_shadowed.__file__
