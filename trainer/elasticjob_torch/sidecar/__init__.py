# SPDX-License-Identifier: Apache-2.0
"""The sidecar's API as this package calls it, with the standard library alone."""
