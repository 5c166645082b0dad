# SPDX-License-Identifier: Apache-2.0
"""The HTTP API for this pod's trainer and its scripts, on loopback only."""
