# SPDX-License-Identifier: Apache-2.0
"""ElasticJob's sidecar: a worker's membership through the Kubernetes API, and its round's store on loopback."""
