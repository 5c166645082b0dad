# SPDX-License-Identifier: Apache-2.0
"""The one of the library."""
