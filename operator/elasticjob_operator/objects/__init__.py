# SPDX-License-Identifier: Apache-2.0
"""The objects that the operator makes, rendered from a job. Pure."""
