# SPDX-License-Identifier: Apache-2.0
"""The API server as the sidecar uses it: it watches one ElasticJob and writes one ElasticWorker."""
