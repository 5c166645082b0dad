# SPDX-License-Identifier: Apache-2.0
"""Access to the API server for all parts: paths, errors, retries, watches. Two transports use it:
`elasticjob_http`, of operator and sidecar, and the command line tool's own."""
