# SPDX-License-Identifier: Apache-2.0
"""Requests to the API server over aiohttp, for operator and sidecar. `elasticjob` has what needs no socket for it."""
