# SPDX-License-Identifier: Apache-2.0
"""The operator: runs the worker pods of ElasticJobs and keeps the agreed rendezvous state in their status."""
