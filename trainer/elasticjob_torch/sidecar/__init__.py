# SPDX-License-Identifier: Apache-2.0
"""The client of the sidecar's API, with the standard library alone."""
