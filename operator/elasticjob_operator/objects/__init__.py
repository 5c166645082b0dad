# SPDX-License-Identifier: Apache-2.0
"""Renders the objects that the operator makes for a job. Pure."""
